"""Success rates under latency, noise and servo lag, one disturbance at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from envs.evaluation.table import format_percent
from envs.simulation.disturbances import Disturbances
from td3_robot.utils.progress import stage

_LATENCIES = (0.0, 0.025, 0.05, 0.075, 0.1)
# by field of Disturbances; each is a thousandth of the SI unit
_UNITS = {"latency": "ms", "noise": "mrad", "servo_lag": "ms"}

Success = dict[str, float]  # controller -> share of its episodes, in [0, 1]


@dataclass(frozen=True)
class Sweep:
    """One disturbance at several magnitudes.

    Attributes:
        varied: field of `Disturbances`.
        values: of that field, in SI units.
        latency: constant latency where another field varies [s].
        compensated: controllers observe the state predicted for when their command takes effect.
    """

    varied: str
    values: tuple[float, ...]
    latency: float = 0.0
    compensated: bool = True

    def get_disturbances(self, value: float) -> dict[str, float]:
        """Return the fields of `Disturbances` at one value of the varied one; the rest are zero."""
        uncompensated = {} if self.compensated else {"assumed_latency": 0.0}
        return (
            ({"latency": self.latency} if self.latency else {})
            | {self.varied: value}
            | uncompensated
        )

    def format_label(self, value: float) -> str:
        """Return the row label of one value."""
        late = f", latency {1000 * self.latency:g} ms" if self.latency else ""
        suffix = "" if self.compensated else ", without latency compensation"
        return f"{self.name} {1000 * value:g} {self.unit}{late}{suffix}"

    @property
    def name(self) -> str:
        """Name of the varied field in words."""
        return self.varied.replace("_", " ")

    @property
    def unit(self) -> str:
        """Unit in which 1,000 times the value is shown."""
        return _UNITS[self.varied]


SWEEPS = {
    "latency": Sweep("latency", _LATENCIES),
    "latency_without_foresight": Sweep("latency", _LATENCIES, compensated=False),
    "noise": Sweep("noise", (0.0, 0.0005, 0.001, 0.002, 0.005), latency=0.05),
    "servo_lag": Sweep("servo_lag", (0.0, 0.01, 0.02, 0.05, 0.1)),
}


@dataclass(frozen=True)
class Robustness:
    """Success rates of the sweeps.

    Attributes:
        episodes: played under each of the disturbances.
        success: by name in `SWEEPS`, at each of its values; only those that were played.
    """

    episodes: int
    success: dict[str, list[Success]]

    @property
    def controllers(self) -> list[str]:
        """Names of the controllers, in order."""
        return list(self.success["latency"][0])

    def to_dict(self) -> dict[str, Any]:
        """Return the results as plain values for JSON; docs/reference/metrics.md names them."""
        return {"episodes": self.episodes} | {
            name: [
                {**SWEEPS[name].get_disturbances(value), "success_rate": rates}
                for value, rates in self.iter_points(name)
            ]
            for name in self.success
        }

    def iter_points(self, name: str) -> Iterator[tuple[float, Success]]:
        """Iterate over the values of a sweep and the success rates at each."""
        return zip(SWEEPS[name].values, self.success[name])

    def iter_rows(self) -> Iterator[tuple[str, list[str]]]:
        """Iterate over the table's rows: a label, and the success rate of each controller [%]."""
        for name in self.success:
            sweep = SWEEPS[name]
            for value, rates in self.iter_points(name):
                if sweep.compensated or value:  # without latency there is nothing to compensate
                    yield (
                        sweep.format_label(value),
                        [format_percent(rate) for rate in rates.values()],
                    )


def sweep(
    play: Callable[[dict[str, float]], Success], episodes: int, lagging: bool = False
) -> Robustness:
    """Play all sweeps; a disturbance that two of them share is played once.

    Args:
        play: disturbances -> success rates under them.
        episodes: number of episodes that `play` plays.
        lagging: the engine simulates the servos itself, as MuJoCo does: skip the servo lag sweep.
    """
    played: dict[Disturbances, Success] = {}

    def play_once(fields: dict[str, Any]) -> Success:
        disturbances = Disturbances(**fields)
        key = disturbances if disturbances else Disturbances()
        if key not in played:
            played[key] = play(fields)
        return played[key]

    success: dict[str, list[Success]] = {}
    sweeps = {
        name: one for name, one in SWEEPS.items() if not (lagging and one.varied == "servo_lag")
    }
    total = sum(len(one.values) for one in sweeps.values())
    with stage("robustness", total, "disturbances") as progress:
        for name, one in sweeps.items():
            success[name] = []
            for value in one.values:
                progress.note = one.format_label(value)
                success[name].append(play_once(one.get_disturbances(value)))
                progress.advance()
    return Robustness(episodes, success)
