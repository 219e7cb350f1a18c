from hypothesis import given, settings
from fedgem import FedGEM
from soundness import assert_sound
from strategies import small_federations


@settings(max_examples=60)
@given(small_federations())
def test_any_small_federation_ends_well(case):
    clients, n_local, covariance_type = case
    model = FedGEM(n_local, covariance_type=covariance_type, max_iter=4, n_init=1, random_state=0)
    assert_sound(model.fit(clients), clients)
