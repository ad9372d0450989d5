"""Is the backend ready, which model does it serve, and has either changed?

Asked once for all sessions. Invariant: `ready_model` returns only after a good probe with a model known, and three
failed probes in a row, not one, make a ready backend unhealthy. An engine may restart with another model between two
probes, so its models are asked for again and again. A probe without an answer says nothing of an engine that sends
bytes of answers meanwhile. An engine without a health page is one that may answer a single request at a time, its list
of models included: that is asked for only before it is ready and while nothing else runs.
What routers are told is `report.py`'s.
Source: signals.md §1.3, §1.5, §9.1; wire.md §11; decisions.md 25 and 38.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from hivenet_router.agent.engines import EngineFace, ModelsUnreadable
from hivenet_router.agent.report import Reports
from hivenet_router.agent.world import Backend
from hivenet_router.config.checks import MODEL_BYTES_MAX
from hivenet_router.core.health import BackendHealth
from hivenet_router.ports import RequestFailed

POLL_DOWN_S: Final = 5.0
"""Between two probes of a backend that has never been ready."""
MODELS_FRESH_S: Final = 5.0
"""Sessions that start together share one discovery."""
MODELS_AGAIN_S: Final = 30.0
"""After so long a ready engine is asked for its models again."""
_NAMES_TOLD_MAX: Final = 10

log = structlog.get_logger("agent")


class BackendDown(Exception):
    """The backend does not do what was asked of it; the text says what it did instead."""


class BackendSilent(BackendDown):
    """It gave no answer in time."""


class BackendWatch:
    """Probes the backend for as long as `run` runs, and tells `reports`.

    `health` is asked at the engine's probe path, or at `health_path` where the engine has none of its own; `models` is
    asked for models. `model` is the operator's choice, else the engine's first is announced. `times_heard` counts the
    arrivals of bytes of answers to requests.
    """

    def __init__(
        self,
        face: EngineFace,
        *,
        health: Backend,
        health_path: str,
        models: Backend,
        model: str | None,
        interval_s: float,
        timeout_s: float,
        times_heard: Callable[[], int],
        reports: Reports,
    ) -> None:
        self._face = face
        self._health = health
        self._probe_path = face.probe_path or health_path
        self._models = models
        self._chosen_model = model
        self._found_model: str | None = None
        self._found_at = 0.0
        self._discovering = asyncio.Lock()
        self._has_failed = False
        self._lacks_probe = False
        self._changed = asyncio.Event()
        self._was_ready = False
        self._told_list: tuple[str, ...] | None = None
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._times_heard = times_heard
        self._reports = reports
        self._state = BackendHealth()
        self._ready = asyncio.Event()
        self._told_down: str | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a session may begin now."""
        return self._ready.is_set()

    @property
    def model(self) -> str | None:
        """The model to announce as far as is known now; None before the engine has told one."""
        return self._chosen_model or self._found_model

    async def until_other_than(self, model: str) -> None:
        """Wait until another model than this is known."""
        while self.model in (None, model):
            await self._changed.wait()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(self._pause_s)

    @property
    def _pause_s(self) -> float:
        return self._interval_s if self._was_ready else POLL_DOWN_S

    async def ready_model(self) -> str:
        """The model to announce, once the backend is ready: what the engine lists now, unless the operator chose."""
        while True:
            await self._ready.wait()
            try:
                model = await self._model()
            except BackendDown as down:
                self._down(str(down))
                await asyncio.sleep(self._pause_s)
            else:
                self._told_down = None
                return model

    async def _look(self) -> None:
        heard_before = self._times_heard()
        try:
            await self._probe()
            model = await self._model_of_ready()
        except BackendDown as down:
            # A silent probe lasts as long as the time within which a byte counts, so what came during it decides.
            is_at_work = isinstance(down, BackendSilent) and self._times_heard() != heard_before
            self._has_failed |= not is_at_work
            changed = self._state.probed(ready=False, is_at_work=is_at_work)
            if is_at_work:
                log.debug("probe_unanswered", why=str(down))
            elif not self.is_ready:
                self._down(str(down))
            elif changed:
                self._ready.clear()
                self._reports.backend_is(healthy=False)
                self._down(str(down))
            return
        self._state.probed(ready=True)
        if not self.is_ready:
            self._told_down = None
            self._was_ready = True
            log.info("backend_ready", model=model)
            self._ready.set()
            self._reports.backend_is(healthy=True)
            await self._warn_if_unlisted()

    async def _probe(self) -> None:
        status, _ = await self._get(self._health, self._probe_path)
        self._lacks_probe = status == 404 and self._face.can_lack_probe
        if self._lacks_probe:
            if not self.is_ready:
                await self._list()
            return
        if status != 200:
            hint = "; does --engine name what runs there?" if status == 404 else ""
            raise BackendDown(f"GET {self._probe_path} answered {status}{hint}")

    async def _model_of_ready(self) -> str:
        known = self._found_model
        if known is None:
            model = await self._model()
            self._has_failed = False
            return model
        if self._lacks_probe and self._reports.is_busy:
            return known
        try:
            model = await self._model(fresh_s=0.0 if self._has_failed else MODELS_AGAIN_S)
        except BackendDown as down:
            # Recovery does not hang on the list of models; it is asked for again with the next probe.
            log.debug("models_unread", why=str(down))
            return known
        self._has_failed = False
        return model

    async def _model(self, *, fresh_s: float = MODELS_FRESH_S) -> str:
        if self._chosen_model is not None:
            return self._chosen_model
        async with self._discovering:
            now = asyncio.get_running_loop().time()
            known = self._found_model
            if known is not None and now - self._found_at < fresh_s:
                return known
            model = self._found_model = await self._first_model()
            self._found_at = now
        if known not in (None, model):
            log.warning("model_changed", old=known, new=model)
            self._changed.set()
            self._changed = asyncio.Event()
        return model

    async def _first_model(self) -> str:
        model = (await self._list())[0]
        if len(model.encode(errors="replace")) > MODEL_BYTES_MAX:
            raise BackendDown(f"the first model's name has more than {MODEL_BYTES_MAX} bytes")
        return model

    async def _warn_if_unlisted(self) -> None:
        chosen = self._chosen_model
        if chosen is None or not self._face.serves_only_listed:
            return
        try:
            listed = await self._list()
        except BackendDown as down:
            log.debug("models_unread", why=str(down))
            return
        if self._face.plain(chosen) in listed or listed == self._told_list:
            return
        self._told_list = listed
        more = "" if len(listed) <= _NAMES_TOLD_MAX else f", and {len(listed) - _NAMES_TOLD_MAX} more"
        log.warning(
            "model_not_listed",
            model=chosen,
            listed=", ".join(name[:MODEL_BYTES_MAX] for name in listed[:_NAMES_TOLD_MAX]) + more,
            check="--model must be a name the engine knows, or it may refuse every request",
        )

    async def _list(self) -> tuple[str, ...]:
        path = self._face.models_path
        if path is None:
            raise BackendDown("this engine has no list of models; name one with --model")
        status, body = await self._get(self._models, path)
        if status != 200:
            raise BackendDown(f"GET {path} answered {status}; name the model with --model if there is no such list")
        try:
            return self._face.models_in(body)
        except ModelsUnreadable as error:
            raise BackendDown(f"the answer of GET {path} is of no use: {error}") from error

    def _down(self, why: str) -> None:
        if why != self._told_down:
            self._told_down = why
            log.warning("backend_not_ready", why=why, check="is the engine up, and does --backend-url lead to it?")

    async def _get(self, backend: Backend, path: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await backend.get(path)
        except TimeoutError as error:
            raise BackendSilent(f"GET {path} got no answer within {self._timeout_s:g} s") from error
        except RequestFailed as error:
            raise BackendDown(f"GET {path} failed: {error}") from error
        return reply.status, reply.body
