"""Does the page tell of each agent what the registry knows, from its first moment to ten minutes after its last?"""

from tests.contracts.metrics_scene import Scene, ended
from tests.core.making import OTHER_MODEL, START, A, described

from hivenet_router.adapters.prometheus_agents import READ_FROM_REGISTRY
from hivenet_router.core.clock import UnixTime
from hivenet_router.core.health import SilenceLimits, monitor_pass, remove_if_gone
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import History
from hivenet_router.core.registry import COUNTS_KEPT_S, DEPARTED_MAX
from hivenet_router.core.srtt import RoundTrip

R_OF_A = (
    '{capacity="10",engine="vllm",machine="gpu-1",model="m",organization="ml-team",peer_id="12D3KooWA",'
    'region="EU-France"}'
)
A_OF_A = '{engine="vllm",machine="gpu-1",model="m",organization="ml-team",peer_id="12D3KooWA"}'


# What the registry knows


def test_all_series_of_an_agent_exist_from_its_registration_on() -> None:
    scene = Scene()
    scene.join(A)
    assert {name.partition("{")[0] for name in scene.shown_of(A)} == {metric.name for metric in READ_FROM_REGISTRY}


def test_a_new_agent_has_no_outcomes_and_counts_as_healthy() -> None:
    scene = Scene()
    scene.join(A)
    shown = scene.shown()
    assert shown["hivenet_routing_agent_info" + R_OF_A] == 1
    assert shown["hivenet_routing_agent_healthy" + R_OF_A] == 1
    assert not any(scene.shown_of(A_OF_A).values())


def test_counts_of_an_earlier_run_are_shown_at_once() -> None:
    scene = Scene()
    scene.registry.register(A, described(), history=History(3, 1, 5, 6, 7, 8, 9, RoundTrip(0.2, 0.05)), now=START)
    values = {name.partition("{")[0]: value for name, value in scene.shown_of(A_OF_A).items()}
    assert values == {
        "hivenet_agent_requests_success_total": 3,
        "hivenet_agent_requests_failed_total": 1,
        "hivenet_agent_input_tokens_total": 5,
        "hivenet_agent_output_tokens_total": 6,
        "hivenet_agent_disconnections_total": 7,
        "hivenet_agent_failure_total": 8,
        "hivenet_model_backend_failure_total": 9,
        "hivenet_agent_rejected_requests_total": 0,
        "hivenet_agent_success_rate": 0.75,
        "hivenet_agent_srtt_ms": 200,
        "hivenet_agent_rttvar_ms": 50,
        "hivenet_agent_capacity_utilization": 0,
        "hivenet_agent_active_requests": 0,
    }


def test_utilization_and_held_slots_are_true_at_every_moment() -> None:
    scene = Scene()
    agent = scene.join(A, described(capacity=4))
    slot = scene.registry.take_slot(agent)
    assert slot is not None

    def now() -> tuple[float, float]:
        shown = scene.shown()
        return (
            shown["hivenet_agent_capacity_utilization" + A_OF_A],
            shown["hivenet_agent_active_requests" + A_OF_A],
        )

    assert now() == (0.25, 1)
    slot.headers_arrived()
    assert now() == (0, 0)
    slot.release()
    assert now() == (0, 0)


def test_a_lost_race_for_a_slot_is_counted() -> None:
    scene = Scene()
    agent = scene.join(A, described(capacity=1))
    assert scene.registry.take_slot(agent) is not None
    assert scene.registry.take_slot(agent) is None
    assert scene.shown()["hivenet_agent_rejected_requests_total" + A_OF_A] == 1


def test_the_healthy_gauge_follows_heartbeats_and_not_the_link() -> None:
    """Source: decisions.md 25."""
    scene = Scene()
    agent = scene.join(A)
    healthy = "hivenet_routing_agent_healthy" + R_OF_A
    scene.registry.link_down(A)
    assert scene.shown()[healthy] == 1
    scene.registry.heartbeat(A, backend_healthy=False, now=scene.clock.now())
    assert scene.shown()[healthy] == 0
    scene.registry.heartbeat(A, backend_healthy=True, now=scene.clock.now())
    assert scene.shown()[healthy] == 1
    scene.registry.fell_silent(agent)
    assert scene.shown()[healthy] == 0


def test_the_last_sign_of_life_is_in_milliseconds() -> None:
    scene = Scene()
    scene.recorder.agent_seen(scene.join(A), at=UnixTime(1_764_000_001.5))
    assert scene.shown()["hivenet_routing_agent_last_seen_timestamp" + R_OF_A] == 1_764_000_001_500


def test_a_late_sign_of_life_does_not_bring_a_removed_agent_back() -> None:
    scene = Scene()
    agent = scene.join(A)
    scene.registry.remove(A, now=scene.clock.now())
    scene.recorder.agent_seen(agent, at=scene.clock.unix())
    assert not scene.shown_of("last_seen")


def test_a_reset_shows_zero_and_not_nothing() -> None:
    scene = Scene()
    agent = scene.join(A)
    agent.outcomes.succeeded(sample_s=0.5, input_tokens=12, output_tokens=34)
    before = scene.shown_of(A_OF_A)
    agent.outcomes.reset()
    assert scene.shown_of(A_OF_A) == dict.fromkeys(before, 0)


# The life of series


def test_a_removed_agents_gauges_vanish_at_once_and_its_counts_after_ten_minutes() -> None:
    """Source: decisions.md 29."""
    scene = Scene()
    agent = scene.join(A)
    scene.recorder.request_ended(ended(agent))
    limits = SilenceLimits()
    scene.clock.seconds = 31
    assert monitor_pass(scene.registry, limits, now=scene.clock.now()) == (agent,)
    assert remove_if_gone(scene.registry, agent, limits, now=scene.clock.now())
    kept = scene.shown_of(A)
    assert {name.partition("{")[0] for name in kept if "duration" not in name} == {
        metric.name for metric in READ_FROM_REGISTRY if metric.kind == "counter"
    }
    assert kept["hivenet_agent_disconnections_total" + A_OF_A] == 1
    assert kept["hivenet_agent_failure_total" + A_OF_A] == 1
    scene.clock.seconds += COUNTS_KEPT_S - 1
    assert scene.shown_of(A) == kept
    scene.clock.seconds += 1
    assert not scene.shown_of(A)


def test_a_request_that_ends_on_a_removed_agent_is_still_counted_and_later_not_shown() -> None:
    scene = Scene()
    agent = scene.join(A)
    scene.registry.remove(A, now=scene.clock.now())
    agent.outcomes.succeeded(sample_s=0.5)
    assert scene.shown()["hivenet_agent_requests_success_total" + A_OF_A] == 1
    scene.clock.seconds = COUNTS_KEPT_S
    assert not scene.shown_of(A)
    scene.recorder.request_ended(ended(agent))
    assert not scene.shown_of(A)


def test_an_agent_that_returns_in_time_has_one_set_of_series() -> None:
    scene = Scene()
    scene.join(A)
    scene.registry.remove(A, now=scene.clock.now())
    scene.join(A, described(region="EU-Spain"))
    assert len(scene.shown_of("agent_disconnections_total")) == 1
    scene.clock.seconds = COUNTS_KEPT_S
    assert len(scene.shown_of("agent_disconnections_total")) == 1


def test_an_agent_that_returns_in_time_goes_on_counting() -> None:
    scene = Scene()
    old = scene.join(A)
    old.outcomes.succeeded(sample_s=0.5, output_tokens=7)
    scene.registry.remove(A, now=scene.clock.now())
    scene.clock.seconds += COUNTS_KEPT_S - 1
    new = scene.join(A)
    # A stream that ends late on what it was.
    old.outcomes.succeeded(sample_s=0.5)
    new.outcomes.succeeded(sample_s=0.5)
    shown = scene.shown()
    assert shown["hivenet_agent_disconnections_total" + A_OF_A] == 1
    assert shown["hivenet_agent_requests_success_total" + A_OF_A] == 3
    assert shown["hivenet_agent_output_tokens_total" + A_OF_A] == 7
    scene.registry.remove(A, now=scene.clock.now())
    scene.clock.seconds += COUNTS_KEPT_S
    scene.join(A)
    assert scene.shown()["hivenet_agent_disconnections_total" + A_OF_A] == 0


def test_other_metadata_leave_no_trace_of_the_old_labels() -> None:
    scene = Scene()
    agent = scene.join(A)
    scene.recorder.request_ended(ended(agent))
    scene.registry.register(A, described(capacity=20, model=OTHER_MODEL), now=scene.clock.now())
    assert all('model="n"' in name for name in scene.shown_of(A))
    assert all('capacity="20"' in name for name in scene.shown_of("capacity="))


def test_only_so_many_removed_agents_are_remembered() -> None:
    scene = Scene()
    for number in range(DEPARTED_MAX + 1):
        peer = PeerId(f"12D3KooW{number:04}")
        scene.recorder.request_ended(ended(scene.join(peer)))
        scene.registry.remove(peer, now=scene.clock.now())
    assert not scene.shown_of("12D3KooW0000")
    assert len(scene.shown_of("agent_disconnections_total")) == DEPARTED_MAX


def test_a_models_counts_are_zero_from_its_first_agent_on() -> None:
    scene = Scene(legacy_names=False)
    scene.join(A)
    assert scene.shown_of('{model="m"') == {
        'hivenet_policy_primary_routed_total{model="m"}': 0,
        'hivenet_policy_exhausted_total{model="m"}': 0,
        'hivenet_agent_connection_resets_total{model="m",reason="forward_failure"}': 0,
        'hivenet_queue_depth{model="m"}': 0,
        'hivenet_streams_in_progress{model="m"}': 0,
    }
