import math

import numpy as np
import pytest
import torch

from data_prep.synthetic import write_raw
from erase_core.ctr import SyntheticClicks, SyntheticDataset
from erase_core.ctr.synthetic import bayes_normalized_entropy
from erase_core.ctr.synthetic.hashing import mix64, uniform
from erase_core.ctr.synthetic.teacher import DESIGNS, Teacher, teacher_values

NAMES = ("criteo", "avazu")


def splitmix64(x: int) -> int:
    """The reference in arbitrary-precision integers."""
    mask = (1 << 64) - 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_hash_is_splitmix64():
    values = [0, 1, -1, 2**63 - 1, -(2**63), 0x9E3779B97F4A7C15 - 2**64]
    hashed = mix64(torch.tensor(values)).numpy().view(np.uint64).tolist()
    assert hashed == [splitmix64(value % 2**64) for value in values]
    ends = uniform(torch.tensor([0, -1]))
    assert ends.tolist() == [0.0, 1 - 2**-53]


def same(left, right):
    return all(
        a is b is None or torch.equal(a, b)
        for a, b in zip(vars(left).values(), vars(right).values(), strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_row_depends_on_seed_and_number_alone(name):
    clicks = SyntheticClicks(name, seed=3)
    whole = clicks.rows(1000, 200)
    assert same(whole, SyntheticClicks(name, seed=3, max_rows=None).rows(1000, 200))
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    shuffled = clicks.at(1000 + order)
    assert torch.equal(shuffled.values, whole.values[order])
    assert torch.equal(shuffled.label, whole.label[order])
    other = SyntheticClicks(name, seed=4).rows(1000, 200)
    assert not torch.equal(other.values, whole.values)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_devices_agree(name):
    clicks = SyntheticClicks(name, seed=3)
    cpu, gpu = (clicks.rows(0, 100_000, device) for device in ("cpu", "cuda"))
    for attribute in ("values", "numeric", "label"):
        assert torch.equal(getattr(cpu, attribute), getattr(gpu, attribute).cpu())
    torch.testing.assert_close(gpu.probability.cpu(), cpu.probability, rtol=1e-12, atol=0)
    ids = [clicks.encoded(0, 1000, device)["ids"].cpu() for device in ("cpu", "cuda")]
    assert torch.equal(*ids)


@pytest.mark.parametrize(("name", "rate"), [("criteo", 0.256), ("avazu", 0.170)])
def test_click_rate_and_calibration(name, rate):
    rows = SyntheticClicks(name, seed=1).rows(0, 100_000)
    deviation = math.sqrt(rate * (1 - rate) / 100_000)
    assert rows.probability.mean().item() == pytest.approx(rate, abs=4 * deviation)
    # Labels follow their probabilities at both ends of the scale, not just on average.
    for part in rows.probability.argsort().chunk(4):
        assert rows.label[part].double().mean().item() == pytest.approx(
            rows.probability[part].mean().item(), abs=0.015
        )


def test_fields_have_the_shapes_they_were_fitted_to():
    clicks = SyntheticClicks("criteo", seed=2)
    rows = clicks.rows(0, 50_000)
    for column, field in enumerate(clicks.population.categorical):
        values = rows.values[:, column]
        assert (values < 0).double().mean().item() == pytest.approx(field.missing, abs=0.01)
        assert values.max() < field.cardinality
    share = {
        field.name: (rows.values[:, column] == 0).double().mean().item()
        for column, field in enumerate(clicks.population.categorical)
    }
    # The commonest values' shares in a uniform sample of the real rows, to a few per cent.
    assert share["C1"] == pytest.approx(0.50, abs=0.02)
    assert share["C9"] == pytest.approx(0.90, abs=0.04)
    assert share["C3"] < 0.05 and rows.values[:, 2].max() > 1_000_000


def test_bayes_normalized_entropy_is_the_least_expected_log_loss():
    probability = SyntheticClicks("criteo").rows(0, 20_000).probability
    best = bayes_normalized_entropy(probability)
    base = probability.mean()

    def expected(predicted):
        loss = -(probability * predicted.log() + (1 - probability) * (1 - predicted).log()).mean()
        return float(loss / -(base * base.log() + (1 - base) * (1 - base).log()))

    assert expected(probability) == pytest.approx(best, rel=1e-12)
    assert expected(base.expand_as(probability)) == pytest.approx(1, rel=1e-12)
    for change in (-0.1, 0.1):
        assert expected(torch.sigmoid(torch.logit(probability) + change)) > best
    assert SyntheticClicks("criteo").bayes_normalized_entropy(0, 20_000) == pytest.approx(best)


@pytest.mark.parametrize("name", NAMES)
def test_teacher_has_every_order_in_the_designed_amount(name):
    clicks, teacher = SyntheticClicks(name), Teacher(name)
    rows = clicks.rows(0, 60_000)
    values, design = teacher_values(rows.values, rows.hour), DESIGNS[name]

    def component(order):
        only = tuple(d if i == order else 0.0 for i, d in enumerate((0.0, *design.deviations[1:])))
        teacher.design = type(design)(design.click_rate, only, design.head, design.chains)
        return teacher.logit(values, rows.numeric)

    main = component(0)
    components = [main, *(component(order) - main for order in (1, 2, 3))]
    for component, deviation in zip(components, design.deviations, strict=True):
        assert component.std().item() == pytest.approx(deviation, rel=0.12)
    # Orders are uncorrelated: what a lower order cannot express it cannot even approximate.
    correlation = torch.corrcoef(torch.stack(components)) - torch.eye(4)
    assert correlation.abs().max() < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_encoded_follows_the_schema(name):
    clicks = SyntheticClicks(name, max_rows=5000)
    schema, batch = clicks.schema, clicks.encoded(7, 3000)
    assert schema.rows <= 5000 and schema.dataset == f"synthetic-{name}"
    assert batch["ids"].shape == (3000, schema.fields) and batch["ids"].dtype == torch.int32
    assert batch["ids"].min() >= 0
    assert (batch["ids"].amax(0) < torch.tensor(schema.cardinalities)).all()
    assert (batch["ids"] == 1).any(), "rare values are out of vocabulary"
    assert set(batch["label"].unique().tolist()) == {0.0, 1.0}
    assert ("dense" in batch) == bool(schema.dense)
    if schema.dense:
        assert batch["dense"].dtype == torch.float32
        assert batch["dense"].abs().max() < 20 and (batch["dense"] == 0).any()


def test_avazus_hour_features_agree():
    clicks = SyntheticClicks("avazu")
    rows = clicks.rows(0, 5000)
    names = clicks.schema.categorical
    hour, weekday, weekend = (
        clicks.encode(rows)["ids"][:, names.index(name)].long() - 2
        for name in ("hour", "weekday", "weekend")
    )
    assert torch.equal(hour, rows.hour % 24)
    assert torch.equal(weekend, (weekday >= 5).long())
    # 2014-10-25 and -26, days 4 and 5, are the only weekend of the ten days.
    assert sorted(set((rows.hour // 24)[weekend == 1].tolist())) == [4, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "movielens"}, r"`name` \(='movielens'\) must be one of \['avazu', 'criteo'\]"),
        ({"seed": -1}, r"`seed` \(=-1\)"),
        ({"max_rows": 10}, r"`max_rows` \(=10\) must be at least"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SyntheticClicks(**arguments)


def test_dataset_splits_are_disjoint_and_do_not_depend_on_each_others_size():
    clicks = SyntheticClicks("avazu", max_rows=3000)
    small, large = (SyntheticDataset(clicks, (rows, 400, 300)) for rows in (500, 800))
    assert torch.equal(small.split("test").tensors["ids"], large.split("test").tensors["ids"])
    train, valid = large.split("train"), large.split("valid")
    assert (train.rows, valid.rows) == (800, 400)
    assert not torch.equal(train.tensors["ids"][:400], valid.tensors["ids"])
    assert valid.click_rate == valid.tensors["label"].double().mean().item()
    assert 0.5 < valid.bayes_normalized_entropy < 1
    assert small.fingerprint != large.fingerprint
    with pytest.raises(ValueError, match="no split 'eval'"):
        small.split("eval")


def test_raw_criteo_file(tmp_path):
    info = write_raw("criteo", 3000, 5, tmp_path / "train.txt")
    lines = (tmp_path / "train.txt").read_text().splitlines()
    cells = [line.split("\t") for line in lines]
    drawn = SyntheticClicks("criteo", 5).rows(0, 3000)
    assert len(lines) == info.rows == 3000 and {len(row) for row in cells} == {40}
    assert [row[0] == "1" for row in cells] == drawn.label.tolist()
    assert info.clicks == sum(row[0] == "1" for row in cells)
    assert np.array_equal(info.probabilities, drawn.probability.numpy())
    for column, field in enumerate(SyntheticClicks("criteo").population.numeric):
        ranks = drawn.numeric[:, column].tolist()
        expected = ["" if rank < 0 else str(rank + field.first) for rank in ranks]
        assert [row[1 + column] for row in cells] == expected
    for column in range(26):
        texts = [row[14 + column] for row in cells]
        ranks = drawn.values[:, column].tolist()
        assert all((rank < 0) == (text == "") for rank, text in zip(ranks, texts, strict=True))
        assert all(len(t) == 8 and int(t, 16) >= 0 for t in texts if t)
        assert len(set(zip(ranks, texts, strict=True))) == len(set(ranks)) == len(set(texts))


def test_raw_avazu_file(tmp_path):
    info = write_raw("avazu", 2000, 5, tmp_path / "train.csv")
    header, *lines = (tmp_path / "train.csv").read_text().splitlines()
    assert header == (
        "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,"
        "app_category,device_id,device_ip,device_model,device_type,device_conn_type,"
        "C14,C15,C16,C17,C18,C19,C20,C21"
    )
    cells = [line.split(",") for line in lines]
    hours = [row[2] for row in cells]
    assert hours == sorted(hours) and hours[0][:6] == "141021" and hours[-1][:6] == "141030"
    assert len({row[0] for row in cells}) == 2000
    assert sum(row[1] == "1" for row in cells) == info.clicks
    assert {row[22] for row in cells} >= {"-1", "100000"}
    # Ordered by time, the same rows: their probabilities are a permutation.
    drawn = SyntheticClicks("avazu", 5).rows(0, 2000).probability.numpy()
    assert not np.array_equal(info.probabilities, drawn)
    assert np.array_equal(np.sort(info.probabilities), np.sort(drawn))
    assert info.bayes_normalized_entropy(slice(0, 500)) != info.bayes_normalized_entropy()


def test_raw_file_is_whole_or_absent(tmp_path, monkeypatch):
    target = tmp_path / "train.txt"
    write_raw("criteo", 100, 0, target)
    before = target.read_bytes()
    with pytest.raises(ValueError, match=r"`rows` \(=0\)"):
        write_raw("criteo", 0, 0, target)

    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("polars.DataFrame.write_csv", fail)
    with pytest.raises(OSError, match="No space left"):
        write_raw("criteo", 100, 1, target)
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]
    assert target.read_bytes() == before
