import re
from pathlib import Path

import numpy as np
import pytest

from fedgem.studies.catalogue import STUDIES
from fedgem.studies.measuring import candidates
from fedgem.studies.page import in_words, page
from fedgem.studies.program import PROGRAM
from fedgem.studies.published import DATA, published
from fedgem.studies.rows import SCHEMA, consolidate, read
from fedgem.studies.running import in_order, rows_of
from fedgem.studies.settings import SETTINGS
from fedgem.studies.tables import Cell, Table, csv_text, escape, latex, markdown, rich_table
from fedgem.studies.views import groups_of, matrix, p_value, table, within_published

TABLE = Table(
    "100% & more_",
    ("data", "method", "ARI"),
    (
        (Cell("a|b"), Cell("x_1"), Cell("0.5 ± 0.1", True)),
        (Cell("a|b"), Cell("x^2"), Cell("~0.4")),
        (Cell("c"), Cell("\\{x}"), Cell("$1")),
    ),
    ("Failed: #1 <none>",),
)


def row(data="mnist", method="FedGEM", seed=0, **values):
    filled = {
        **dict.fromkeys(SCHEMA.names),
        "data": data,
        "method": method,
        "seed": seed,
        "is_federated": True,
        "knows": "K_g",
        "n_classes": 10,
        "n_clients": 5,
        "n_clusters": 10,
        "miscount": 0,
        "ari_local": 0.5,
        "ari_global": 0.5,
        "silhouette_local": 0.1,
        "silhouette_global": 0.1,
        "seconds": 1.0,
        "n_rounds": 2,
        "bytes_up": 10,
        "bytes_down": 20,
        "versions": "v",
    }
    return filled | values


def test_latex_escapes_all_that_it_would_take_for_commands():
    text = latex(TABLE)
    assert r"\caption{100\% \& more\_} \\" in text
    assert r"\textbf{0.5 $\pm$ 0.1}" in text
    assert escape("\\{x}") == r"\textbackslash{}\{x\}"
    bare = re.sub(r"\\[\\%&$#_{}]|\\[a-z]+", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[%#_^~<>|\\]", bare)
    body = text.split(r"\endhead")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert [line.count(" & ") for line in lines] == [2, 2, 2]


def test_all_ways_to_write_a_table_have_its_cells():
    assert csv_text(TABLE).splitlines()[2] == "a|b,x^2,~0.4"
    assert r"| a\|b | x_1 | **0.5 ± 0.1** |" in markdown(TABLE)
    assert "|  | x^2 | ~0.4 |" in markdown(TABLE)
    assert "Failed: #1 <none>" in markdown(TABLE)
    assert rich_table(TABLE).row_count == 3


def test_every_study_draws_what_it_has(tmp_path):
    """Rows that are made up, in every place and with every method of every study."""
    for study in STUDIES.values():
        methods = [e.name for e in candidates().values() if study.measurement.takes(e)]
        assert methods
        assert len({(c.data, c.x) for c in study.measurement.cases}) == len(study.measurement.cases)
        rows = [
            row(case.data, method, seed, x=case.x, ari_local=0.1 * seed + 0.01 * n)
            for case in study.measurement.cases
            for n, method in enumerate(methods)
            for seed in range(2)
        ]
        consolidate(rows_of(study.measurement, tmp_path), rows)
        for make in study.tables.values():
            assert len(make(rows).lines) >= len(methods)
        for draw in study.figures.values():
            figure = draw(rows)
            assert (figure is None) == (len(methods) < 2)
    written = page(tmp_path)
    assert all(f"`fedgem study {name}`" in written for name in STUDIES)


def test_rows_survive_the_disk(tmp_path):
    rows = [row(seed=0, x=0.5), row(seed=1, error="ValueError: no")]
    consolidate(tmp_path / "rows.parquet", rows)
    assert read(tmp_path / "rows.parquet") == rows


def test_in_order_of_cases_methods_and_seeds():
    rows = [row("frog-a"), row(seed=1), row(method="new"), row(method=PROGRAM.name), row()]
    ordered = in_order(rows, STUDIES["table1"].measurement)
    assert [(r["data"], r["method"], r["seed"]) for r in ordered] == [
        ("mnist", "FedGEM", 0),
        ("mnist", "FedGEM", 1),
        ("mnist", PROGRAM.name, 0),
        ("mnist", "new", 0),
        ("frog-a", "FedGEM", 0),
    ]


def test_p_values_are_of_seeds_that_all_have():
    good = [row(seed=s, ari_local=0.5 + 0.01 * s) for s in range(9)]
    bad = [row(method="k-FED", seed=s, ari_local=0.1) for s in range(1, 9)]
    peers = groups_of([*good, *bad])["mnist", None]
    assert [p_value("ari_local")(group, peers).text for group in peers] == ["best", "0.0078"]


def test_ranks_are_of_cases_that_all_methods_have_met():
    rows = [row(), row(seed=1), row(method="k-FED", error="no", ari_local=None)]
    scores, methods = matrix(rows, "ari_local")
    assert methods == ["FedGEM", "k-FED"]
    np.testing.assert_array_equal(scores, [[0.5, np.nan]])


def test_within_a_published_standard_deviation():
    rows = [row(method=PROGRAM.name, ari_local=0.42), row("waveform", PROGRAM.name, ari_local=0.1)]
    made = table("", rows, {"within": within_published("ari", "ari_local")})
    assert [line[-1].text for line in made.lines] == ["yes", "no"]


def test_what_is_published_is_there_for_every_data_set():
    assert set(DATA) == set(SETTINGS)
    assert published("silhouette", "FFCM-avg1", "emnist") == (-0.113, 0.026)
    assert published("n_clusters", "DP-GMM (central)", "abalone") == (15.46, 2.20)
    assert published("ari", "FedKmeans", "waveform") == (0.260, 0.015)
    assert published("ari", "mine", "mnist") is None
    assert published("n_clusters", "k-FED", "mnist") is None
    assert published("seconds", "FedGEM, paper", "cifar-10") == (345, 35)
    assert published("seconds", "FFCM-avg2", "emnist") == (6075, 842)
    assert published("seconds", "AFCL", "abalone") is None
    for method in ("AFCL", "FedGEM, paper"):
        assert all(published("n_clusters", method, data)[1] > 1 for data in DATA)


def test_the_page_says_where_fedgem_loses():
    rows = [
        row("mnist", ari_local=0.9),
        row("mnist", "k-FED", ari_local=0.6, ari_global=0.7, knows="K, K_g"),
        row("mnist", "AFCL", ari_local=0.1, ari_global=0.1, knows="", miscount=400),
        row("frog-a", ari_local=0.6, miscount=3),
        row("frog-a", "k-FED", ari_local=0.7, knows="K, K_g"),
    ]
    text = in_words(rows)
    assert "3 methods on 2 data sets, with 1 seed," in text
    assert "on each client on its own, FedGEM is best on 1 of 2 data sets (mnist)." in text
    assert "It loses on frog-a to k-FED, which is told K (0.600 against 0.700)." in text
    assert "It loses on mnist to k-FED, which is told K (0.500 against 0.700)." in text
    assert text.endswith("on average: 1.5 (FedGEM) and 400.0 (AFCL).")


def test_where_all_fail_there_is_no_figure():
    rows = [row(x=1.0, knows=None, error="ValueError: no")]
    assert all(draw(rows) is None for draw in STUDIES["radius"].figures.values())


def test_numbers_of_clusters_far_off_are_drawn_on_a_logarithmic_scale():
    draw = STUDIES["radius"].figures["radius-clusters"]
    near = [row(data, x=x, n_clusters=12) for data in ("a", "b") for x in (1.0, 2.0)]
    assert {ax.get_yscale() for ax in draw(near).axes} == {"linear"}
    far = [*near, row("a", "AFCL", x=1.0, n_clusters=112)]
    assert {ax.get_yscale() for ax in draw(far).axes} == {"log"}
    told = [row(x=1.0, method="FedKmeans", knows="K, K_g")]
    assert draw(told) is None


def test_each_size_has_an_axis_of_its_own():
    cases = [case for case in STUDIES["scalability"].measurement.cases if not case.methods]
    rows = [row(c.data, m, x=c.x) for c in cases for m in ("FedGEM", "AFCL")]
    figure = STUDIES["scalability"].figures["scalability"](rows)
    assert [ax.get_xlabel() for ax in figure.axes] == list(dict.fromkeys(c.data for c in cases))
    assert {(ax.get_xscale(), ax.get_yscale()) for ax in figure.axes} == {("linear", "log")}
    (drawn,) = STUDIES["scalability"].tables.values()
    assert drawn(rows).lines[0][0].text == "features = 5"


def test_no_page_of_nothing(tmp_path):
    with pytest.raises(ValueError, match="found no rows"):
        page(tmp_path)


def test_the_page_of_benchmarks_is_that_of_its_rows():
    docs = Path(__file__).parents[2] / "docs"
    assert page(docs / "benchmarks") == (docs / "benchmarks.md").read_text()
