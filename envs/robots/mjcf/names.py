"""Names of a compiled model's bodies, joints and sites, each used once."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

_FREE = (0, 1)  # mjtJoint: free and ball, which have no single axis
_TIES = {0: "connect", 1: "weld"}  # mjtEq
_BODY = 1  # mjtObj


class GeomType(IntEnum):
    """Shapes of geoms, by the numbers of `mujoco.mjtGeom`: MuJoCo's package is an extra."""

    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7


class Names:
    """Names by index; MuJoCo lets bodies and sites share one, and things have none.

    Attributes:
        model: the name of the model.
        bodies, joints, sites: by index; a site that is called like a body is `NAME:site`.
    """

    def __init__(self, model: Any):
        import mujoco  # here: it is an extra

        def read(kind: str, count: int, obj: Any) -> list[str]:
            found = [mujoco.mj_id2name(model, obj, index) for index in range(count)]
            return [name or _make_name(f"{kind}{index}", found) for index, name in enumerate(found)]

        self._model = model
        self.model = bytes(model.names).split(b"\0", 1)[0].decode(errors="replace")
        self.bodies = read("body", model.nbody, mujoco.mjtObj.mjOBJ_BODY)
        self.joints = read("joint", model.njnt, mujoco.mjtObj.mjOBJ_JOINT)
        sites = read("site", model.nsite, mujoco.mjtObj.mjOBJ_SITE)
        taken = set(self.bodies)
        self.sites = [f"{name}:site" if name in taken else name for name in sites]

    def list_joints(self, body: int) -> list[int]:
        """List the joints of a body itself."""
        first = int(self._model.body_jntadr[body])
        return list(range(first, first + int(self._model.body_jntnum[body])))

    def is_moving(self, body: int) -> bool:
        """Tell if a body has a joint."""
        return bool(self.list_joints(body))

    def find_free_joint(self, body: int) -> int | None:
        """Find a free or ball joint of a body itself."""
        types = self._model.jnt_type
        return next((joint for joint in self.list_joints(body) if types[joint] in _FREE), None)

    def list_path(self, body: int) -> list[int]:
        """List the bodies from a body up to the one below the world."""
        path = []
        while body > 0:
            path.append(body)
            body = int(self._model.body_parentid[body])
        return path


def iter_ties(model: Any) -> Iterator[tuple[str, list[int]]]:
    """Yield the active constraints that tie two bodies: the kind, and both bodies."""
    for index in range(model.neq):
        kind = _TIES.get(int(model.eq_type[index]))
        if kind is None or not model.eq_active0[index]:
            continue
        ends = [int(model.eq_obj1id[index]), int(model.eq_obj2id[index])]
        if int(model.eq_objtype[index]) != _BODY:  # of sites
            ends = [int(model.site_bodyid[end]) for end in ends]
        yield kind, ends


def _make_name(name: str, taken: list[str | None]) -> str:
    """Make a name for what has none, which nothing else in the file has."""
    while name in taken:
        name += "_"
    return name
