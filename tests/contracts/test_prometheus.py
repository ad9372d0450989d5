"""Does the metrics page say what happened, under names and labels that dashboards rely on, and no more than it may?"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.contracts.metrics_scene import Scene, ended, play
from tests.core.making import MODEL, OTHER_MODEL, A, B, C
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.adapters.prometheus import CONTENT_TYPE
from hivenet_router.adapters.prometheus_agents import READ_FROM_REGISTRY
from hivenet_router.adapters.prometheus_process import ProcessFigures
from hivenet_router.adapters.prometheus_series import LINES_OF_PIECE, Families, blocks_of, number_text, pieces_of
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.names.metrics import METRICS, Metric

GOLDEN = Path(__file__).with_name("metrics_page.golden.txt")
UNKNOWN = ModelName("never-heard-of")
PROCESS_FIGURES = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
}


# The page as a whole


def test_the_page_of_a_small_scene_is_the_golden_one() -> None:
    scene = Scene()
    agent = scene.join(A, deployment="blue")
    agent.outcomes.failed(Mark.APPLICATION, now=scene.clock.now())
    agent.outcomes.succeeded(sample_s=0.5, input_tokens=12, output_tokens=34)
    assert scene.registry.take_slot(agent) is not None
    play(scene.recorder, agent)
    lines = [line for line in scene.recorder.page().decode().splitlines(keepends=True) if "process_" not in line]
    provenance, _, expected = GOLDEN.read_text().partition("\n")
    assert provenance.startswith("Written by the recorder and checked")
    assert "".join(lines) == expected


def test_the_client_library_reads_the_page_and_finds_families_of_known_rows_sorted() -> None:
    scene = Scene(legacy_names=False)
    play(scene.recorder, scene.join(A))
    families = list(text_string_to_metric_families(scene.recorder.page().decode()))
    kinds = {family.name: family.type for family in families}
    assert [family.name for family in families] == sorted(kinds)
    rows = {(metric.name.removesuffix("_total"), str(metric.kind)) for metric in METRICS}
    shown = {(name, kind) for name, kind in kinds.items() if not name.startswith("process_")}
    assert {("hivenet_agent_srtt_ms", "gauge"), ("hivenet_queue_wait_seconds", "histogram")} <= shown <= rows
    assert "version=0.0.4" in CONTENT_TYPE


def test_every_label_of_a_row_and_no_other_stands_on_its_samples() -> None:
    scene = Scene(legacy_names=False)
    play(scene.recorder, scene.join(A))
    labels = {metric.name.removesuffix("_total"): set(metric.labels) for metric in METRICS}
    for family in text_string_to_metric_families(scene.recorder.page().decode()):
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels.get(family.name, set())


def test_no_creation_times_are_shown() -> None:
    scene = Scene()
    play(scene.recorder, scene.join(A))
    assert b"_created" not in scene.recorder.page()


def test_the_process_shows_the_nine_figures_of_the_original_where_the_system_gives_them() -> None:
    names = {line.split()[0] for line in Scene().recorder.page().decode().splitlines() if line.startswith("process_")}
    assert names == (PROCESS_FIGURES if Path("/proc/self/net/netstat").exists() else set())


def test_a_process_that_may_not_read_its_figures_shows_none(tmp_path: Path) -> None:
    assert not list(ProcessFigures(tmp_path).blocks())


def test_a_limit_on_memory_and_what_went_over_the_network_are_read(tmp_path: Path) -> None:
    process = tmp_path / "self"
    (process / "net").mkdir(parents=True)
    (process / "limits").write_text("Limit  Soft Limit  Hard Limit  Units\nMax address space  4096  unlimited  bytes\n")
    (process / "net" / "netstat").write_text("TcpExt: X\nTcpExt: 9\nIpExt: A InOctets OutOctets\nIpExt: 1 20 30\n")
    assert [block.lines for block in ProcessFigures(tmp_path).blocks()] == [
        ["process_virtual_memory_max_bytes 4096\n"],
        ["process_network_receive_bytes_total 20\n"],
        ["process_network_transmit_bytes_total 30\n"],
    ]


def test_a_counter_without_labels_is_zero_from_the_start_and_a_gauge_is_not_there() -> None:
    """Alerts watch the increase of the one and the presence of the other. Source: observability.md §1.8."""
    rows = [Metric("x_total", "counter", (), "X."), Metric("y", "gauge", (), "Y.")]
    stock = Families(rows, label_sets_max=10).stock()
    blocks = (block for row, series in stock for block in blocks_of(row, series, legacy_names=True))
    assert b"".join(pieces_of(blocks)) == (b"# HELP x_total X.\n# TYPE x_total counter\nx_total 0\n")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (3.0, "3"),
        (-1, "-1"),
        (0.25, "0.25"),
        (1_764_000_000_250, "1764000000250"),
        (2.0**64, "1.8446744073709552e+19"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_the_original_writes_them(number: float, text: str) -> None:
    assert number_text(number) == text


def test_older_names_show_the_same_values() -> None:
    scene = Scene()
    play(scene.recorder, scene.join(A))
    shown = scene.shown()
    older = {name: value for name, value in shown.items() if name.startswith("hivenet_router_")}
    assert {name.partition("{")[0] for name in older} == {alias for metric in METRICS for alias in metric.aliases}
    assert all(shown[name.replace("hivenet_router_", "hivenet_", 1)] == value for name, value in older.items())


def test_older_names_can_be_turned_off() -> None:
    scene = Scene(legacy_names=False)
    play(scene.recorder, scene.join(A))
    assert b"hivenet_router_" not in scene.recorder.page()


def test_rows_read_from_the_registry_have_no_older_names() -> None:
    assert not any(metric.aliases for metric in READ_FROM_REGISTRY)


def test_a_page_that_is_written_while_agents_come_and_go_shows_who_was_there() -> None:
    scene = Scene()
    scene.join(A)
    pieces = scene.recorder.page_in_pieces()
    scene.join(B)
    scene.registry.remove(A, now=scene.clock.now())
    page = b"".join(pieces)
    assert A.encode() in page
    assert B.encode() not in page


def test_a_long_page_comes_in_pieces_of_a_few_lines() -> None:
    scene = Scene()
    for number in range(300):
        scene.join(PeerId(f"12D3KooW{number}"))
    pieces = list(scene.recorder.page_in_pieces())
    assert len(pieces) > 15
    assert all(piece.count(b"\n") < 2 * LINES_OF_PIECE for piece in pieces)


# What events count


@pytest.mark.parametrize(
    ("outcome", "was_answered", "was_routed", "successes", "failures"),
    [
        ("served", True, True, 1, 0),
        ("client_gone", True, True, 1, 0),
        ("stream_cut", True, True, 0, 1),
        ("backend_error", False, True, 0, 1),
        ("context_length_exceeded", False, True, 0, 1),
        ("no_capacity", False, False, 0, 1),
        ("model_not_found", False, False, 0, 1),
        ("rate_limit_exceeded", False, False, 0, 1),
        ("request_timeout", False, False, 0, 1),
    ],
)
def test_a_tenants_request_is_a_success_or_a_failure(
    outcome: str, was_answered: bool, was_routed: bool, successes: int, failures: int
) -> None:
    """Source: observability.md §1.4."""
    scene = Scene()
    agent = scene.join(A, deployment="unset")
    scene.recorder.request_ended(ended(agent if was_answered else None, outcome, was_routed=was_routed))
    labels = '{deployment_id="unset",key_id="anonymous",model="m",tenant_id="acme"}'
    shown = scene.shown()
    assert shown["hivenet_tenant_requests_success_total" + labels] == successes
    assert shown["hivenet_tenant_requests_failed_total" + labels] == failures
    assert shown["hivenet_tenant_output_tokens_total" + labels] == (34 if was_answered else 0)


@pytest.mark.parametrize(
    ("outcome", "was_routed"),
    [
        ("unauthorized", False),
        ("request_invalid", False),
        ("concurrency_limit_exceeded", False),
        ("queue_full", False),
        ("model_redirected", False),
        ("client_gone", False),
        ("client_gone", True),
    ],
)
def test_what_is_no_tenants_failure_is_counted_for_the_model_alone(outcome: str, was_routed: bool) -> None:
    scene = Scene()
    scene.join(A)
    scene.recorder.request_ended(ended(None, outcome, 400, was_routed=was_routed, first_byte_s=0.0))
    assert scene.shown()[f'hivenet_requests_total{{model="m",outcome="{outcome}"}}'] == 1
    assert not scene.shown_of("tenant_requests")


def test_an_answer_without_a_byte_has_no_time_to_its_first_byte() -> None:
    scene = Scene()
    scene.recorder.request_ended(ended(scene.join(A), first_byte_s=0.0))
    assert not scene.shown_of("duration_seconds")


def test_an_exhausted_policy_is_a_failed_attempt_of_no_agent() -> None:
    scene = Scene()
    scene.join(A)
    scene.recorder.policy_exhausted(MODEL, "acme")
    failed = 'hivenet_routing_requests_failed_total{engine="",model="m",region="",tenant_id="acme"}'
    assert scene.shown()[failed] == 1


def test_an_observation_on_a_bound_falls_into_the_bucket_below_it() -> None:
    scene = Scene()
    scene.join(A)
    for seconds in (0.01, 0.0101, 100.0):
        scene.recorder.waited(MODEL, seconds)
    shown = scene.shown()
    assert shown['hivenet_queue_wait_seconds_bucket{model="m",le="0.01"}'] == 1
    assert shown['hivenet_queue_wait_seconds_bucket{model="m",le="0.02"}'] == 2
    assert shown['hivenet_queue_wait_seconds_bucket{model="m",le="40.96"}'] == 2
    assert shown['hivenet_queue_wait_seconds_bucket{model="m",le="+Inf"}'] == 3
    assert shown['hivenet_queue_wait_seconds_count{model="m"}'] == 3
    assert shown['hivenet_queue_wait_seconds_sum{model="m"}'] == pytest.approx(100.0201)


@given(st.lists(st.floats(0, 200)))
def test_every_bucket_holds_what_is_not_above_its_bound(waits: list[float]) -> None:
    scene = Scene()
    scene.join(A)
    for seconds in waits:
        scene.recorder.waited(MODEL, seconds)
    for name, count in scene.shown_of("queue_wait_seconds_bucket").items():
        bound = float(name.partition('le="')[2].removesuffix('"}'))
        assert count == sum(seconds <= bound for seconds in waits)


# Bounds


def test_a_method_nobody_knows_is_counted_as_other() -> None:
    scene = Scene()
    for method in ("FOO", "get", "BAR"):
        scene.recorder.http_began(method, "unmatched")
    assert scene.shown_of("active_requests") == {
        'http_server_active_requests{method="_other",route="unmatched"}': 3,
    }


def test_a_model_nobody_vouches_for_is_counted_as_other() -> None:
    scene = Scene()
    scene.join(A)
    scene.recorder.policy_exhausted(UNKNOWN, "acme")
    scene.recorder.request_ended(ended(None, "model_not_found", 404, model=UNKNOWN, was_routed=False))
    assert not scene.shown_of(UNKNOWN)
    assert scene.shown()['hivenet_requests_total{model="_other",outcome="model_not_found"}'] == 1
    assert scene.shown()['hivenet_policy_exhausted_total{model="_other"}'] == 1


def test_a_configured_model_and_one_whose_agents_left_keep_their_names() -> None:
    scene = Scene(is_configured=lambda model: model == OTHER_MODEL)
    scene.join(A)
    scene.registry.remove(A, now=scene.clock.now())
    for model in (MODEL, OTHER_MODEL):
        scene.recorder.policy_exhausted(model, "acme")
    shown = scene.shown()
    assert shown['hivenet_policy_exhausted_total{model="m"}'] == 1
    assert shown['hivenet_policy_exhausted_total{model="n"}'] == 1


def test_beyond_its_bound_a_family_counts_under_overflow_and_says_so() -> None:
    scene = Scene(label_sets_max=3)
    for number in range(5):
        scene.recorder.edge_rejected("api", f"reason-{number}")
    scene.recorder.edge_rejected("api", "reason-0")
    rejected = scene.shown_of("http_rejected_total{")
    assert len(rejected) == 4
    assert rejected['hivenet_http_rejected_total{listener="_overflow",reason="_overflow"}'] == 2
    assert rejected['hivenet_http_rejected_total{listener="api",reason="reason-0"}'] == 2
    assert scene.shown()['hivenet_metrics_overflow_total{family="hivenet_http_rejected_total"}'] == 2


def test_agents_beyond_the_bound_are_left_off_and_counted_on_every_page() -> None:
    scene = Scene(label_sets_max=2)
    for peer in (A, B, C):
        scene.join(peer)
    assert len(scene.shown_of("routing_agent_info")) == 2 + 1
    assert not scene.shown_of(C)
    assert scene.shown()['hivenet_metrics_overflow_total{family="hivenet_agent_srtt_ms"}'] == 3


@given(st.text())
def test_any_label_value_comes_back_short_and_without_controls(value: str) -> None:
    scene = Scene()
    scene.recorder.edge_rejected("api", value)
    (family,) = [
        family
        for family in text_string_to_metric_families(scene.recorder.page().decode())
        if family.name == "hivenet_http_rejected"
    ]
    (sample,) = family.samples
    shown = sample.labels["reason"]
    assert len(shown) <= 128
    assert shown == value or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value) or len(value) > 128


def test_long_label_values_with_the_same_beginning_stay_apart() -> None:
    scene = Scene()
    for ending in ("a", "b"):
        scene.recorder.edge_rejected("api", "x" * 200 + ending)
    assert len(scene.shown_of("http_rejected_total{")) == 2


def test_values_that_read_alike_once_cleaned_share_a_series() -> None:
    scene = Scene()
    for reason in ("a\nb", "a\x00b", "a_b", "a\ud800b", "a_b"):
        scene.recorder.edge_rejected("api", reason)
    assert scene.shown_of("http_rejected_total{") == {
        'hivenet_http_rejected_total{listener="api",reason="a_b"}': 5,
    }


# The fake


def test_the_fake_agrees_with_the_real_one() -> None:
    scene = Scene(legacy_names=False)
    agent = scene.join(A)
    fake = RecordingRecorder()
    for recorder in (scene.recorder, fake):
        play(recorder, agent)

    def total(family: str) -> float:
        return sum(scene.shown_of(family + "{").values())

    assert fake.at_rest
    assert total("hivenet_queue_depth") == total("hivenet_streams_in_progress") == 0
    assert total("http_server_active_requests") == 0
    assert len(fake.answered) == total("hivenet_routing_requests_routed_total")
    assert len(fake.failed) + len(fake.exhausted) == total("hivenet_routing_requests_failed_total")
    assert len(fake.ends) == total("hivenet_requests_total")
    assert fake.outcomes == ["served", "no_capacity"]
    assert len(fake.waits) == total("hivenet_queue_wait_seconds_count")
    assert len(fake.http_ends) == total("http_server_request_duration_seconds_count")
    assert fake.rejections.total() == total("hivenet_http_rejected_total")
    assert len(fake.link_resets) == total("hivenet_agent_connection_resets_total")


def test_a_request_refused_before_it_was_identified_counts_for_the_tenant_anonymous() -> None:
    """Source: observability.md §1.6."""
    scene = Scene()
    scene.join(A)
    refused = replace(ended(None, "request_timeout", 408, was_routed=False, first_byte_s=0.0), tenant="")
    scene.recorder.request_ended(refused)
    shown = scene.shown()
    labels = '{deployment_id="unset",key_id="anonymous",model="m",tenant_id="anonymous"}'
    assert shown["hivenet_tenant_requests_failed_total" + labels] == 1
    assert not any('tenant_id=""' in series for series in shown)
