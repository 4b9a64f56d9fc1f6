"""Success against delay, noise and lag: the same episodes again behind one disturbance after
another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from envs.simulation.disturbances import Disturbances

_LATENCIES = (0.0, 0.025, 0.05, 0.075, 0.1)
_UNITS = {
    "latency": "ms",
    "noise": "mrad",
    "servo_lag": "ms",
}  # a thousandth of the SI unit, all of them

Success = dict[str, float]  # controller -> share of its episodes, in [0, 1]


@dataclass(frozen=True)
class Sweep:
    """One disturbance from none to much.

    Attributes:
        varied: field of `Disturbances`.
        values: of it, in SI units.
        latency: beside it, where it is another that varies [s].
        foreseen: controllers see the arm as it will be when their command begins to act.
    """

    varied: str
    values: tuple[float, ...]
    latency: float = 0.0
    foreseen: bool = True

    def given(self, value: float) -> dict[str, float]:
        """All disturbances where the varied one has a value; the rest are none."""
        unforeseen = {} if self.foreseen else {"assumed_latency": 0.0}
        return (
            ({"latency": self.latency} if self.latency else {}) | {self.varied: value} | unforeseen
        )

    def label(self, value: float) -> str:
        """The same in words."""
        late = f", latency {1000 * self.latency:g} ms" if self.latency else ""
        return f"{self.name} {1000 * value:g} {self.unit}{late}{'' if self.foreseen else ', without foresight'}"

    @property
    def name(self) -> str:
        """Of what varies."""
        return self.varied.replace("_", " ")

    @property
    def unit(self) -> str:
        """In which a thousand times the value is shown."""
        return _UNITS[self.varied]


SWEEPS = {
    "latency": Sweep("latency", _LATENCIES),
    "latency_without_foresight": Sweep("latency", _LATENCIES, foreseen=False),
    "noise": Sweep("noise", (0.0, 0.0005, 0.001, 0.002, 0.005), latency=0.05),
    "servo_lag": Sweep("servo_lag", (0.0, 0.01, 0.02, 0.05, 0.1)),
}


@dataclass(frozen=True)
class Robustness:
    """What came of the sweeps.

    Attributes:
        episodes: behind each of the disturbances.
        success: by the names of `SWEEPS`, at each of their values; without those that were not
            played.
    """

    episodes: int
    success: dict[str, list[Success]]

    @property
    def controllers(self) -> list[str]:
        """Their names, in order."""
        return list(self.success["latency"][0])

    def results(self) -> dict[str, Any]:
        """All of it as plain values for JSON; docs/evaluation.md names them."""
        return {"episodes": self.episodes} | {
            name: [
                {**SWEEPS[name].given(value), "success_rate": rates}
                for value, rates in self.points(name)
            ]
            for name in self.success
        }

    def points(self, name: str) -> Iterator[tuple[float, Success]]:
        """The values of a sweep and what came of each."""
        return zip(SWEEPS[name].values, self.success[name])

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """Label and cells, of one controller each, of the table's rows: success rates in
        percent.
        """
        for name in self.success:
            sweep = SWEEPS[name]
            for value, rates in self.points(name):
                if sweep.foreseen or value:  # where there is no latency, nothing is foreseen
                    yield sweep.label(value), [f"{100 * rate:.1f}" for rate in rates.values()]


def sweep(
    play: Callable[[dict[str, float]], Success], episodes: int, lagging: bool = False
) -> Robustness:
    """Play all that there is to play; what is the same disturbance in two sweeps, once.

    Args:
        play: disturbances -> what came of as many episodes behind them.
        episodes: how many those are.
        lagging: the arms' servos lag by themselves, as in contact physics: no lag is put on top.
    """
    played: dict[Disturbances, Success] = {}

    def once(given: dict[str, Any]) -> Success:
        disturbances = Disturbances(**given)
        key = disturbances if disturbances else Disturbances()
        if key not in played:
            played[key] = play(given)
        return played[key]

    swept = {
        name: one for name, one in SWEEPS.items() if not (lagging and one.varied == "servo_lag")
    }
    return Robustness(
        episodes,
        {name: [once(one.given(value)) for value in one.values] for name, one in swept.items()},
    )
