"""What docs/datasets.md says and shows is so."""

import re
from pathlib import Path

from fedgem.datasets import DATASET_NAMES, load_dataset

PAGE = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text()


def test_the_example_runs(data_dir, monkeypatch, capsys):
    monkeypatch.setenv("FEDGEM_DATA", str(data_dir))
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(example, "datasets.md", "exec"), {})
    sizes, n_recordings = capsys.readouterr().out.splitlines()
    assert sizes.startswith("{'client-1': ")
    assert n_recordings == "60"


def test_the_table_says_what_is_loaded(data_dir):
    table = re.findall(r"^\| `(\S+)` \| ([\d,]+) x (\d+).*? \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert [name for name, *_ in table] == list(DATASET_NAMES)
    for name, *numbers in table:
        dataset = load_dataset(name, data_dir)
        found = [*dataset.X.shape, len(dataset.class_names)]
        assert [int(number.replace(",", "")) for number in numbers] == found
