"""The arm among all that an MJCF file holds: its base, its TCP, and what stands in its way."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Sequence

from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.names import Names, iter_ties
from envs.robots.urdf.tcp import find_tcp, list_moving_joints
from envs.robots.urdf.tree import Joint, Tree, join_names
from td3_robot.errors import ConfigError, unknown

# What sites at the end of an arm are called, the most telling first; by themselves or after a
# prefix. `attachment_site` is Menagerie's, where tools are mounted.
_SITES = (
    *("tcp", "pinch", "pinch_site", "grasp_site", "gripper", "gripperframe", "grip_site"),
    *("end_effector", "eef", "ee_site", "ee", "attachment_site", "flange"),
)


def find_base(file: CompiledFile, names: Names, base: str | None) -> int:
    """Find the body at the base of the arm: one that is named, or the only one on the world.

    Raises:
        ConfigError: there is no such body, or several parts move.
    """
    if base is not None:
        if base not in names.bodies[1:]:
            raise unknown(f"base body of {file.source}", base, names.bodies[1:])
        return names.bodies.index(base)
    parents = file.model.body_parentid
    tops = [body for body in range(1, file.model.nbody) if parents[body] == 0]
    arms = [top for top in tops if _find_moving(names, list_below(file, names, top))]
    if len(arms) == 1:
        return arms[0]
    if arms:
        choice = join_names(names.bodies[body] for body in arms)
        raise ConfigError(
            f"{file.source}: several things move; choose the body at the arm's base with --base: "
            f"{choice}"
        )
    floating = [top for top in tops if names.find_free_joint(top) is not None]
    if floating:
        joint = names.joints[names.find_free_joint(floating[0]) or 0]
        raise ConfigError(
            f"{file.source}: body {names.bodies[floating[0]]!r} is not mounted (joint {joint!r} is "
            "free): an arm's base stands still; choose a body beyond it with --base"
        )
    raise ConfigError(f"{file.source}: no joint moves; an arm needs hinge or slide joints")


def list_below(file: CompiledFile, names: Names, root: int) -> list[int]:
    """List a body and those below it, parents first, without what free and ball joints move."""
    found: list[int] = []
    inside = {root}
    for body in range(root, file.model.nbody):  # MuJoCo numbers parents before children
        parent = int(file.model.body_parentid[body])
        free = names.find_free_joint(body) is not None
        if body == root or (parent in inside and not free):
            inside.add(body)
            found.append(body)
    return [] if names.find_free_joint(root) is not None else found


def _find_moving(names: Names, bodies: list[int]) -> list[int]:
    return [body for body in bodies if names.is_moving(body)]


def choose_tcp(
    file: CompiledFile, names: Names, tree: Tree, tcp: str | None, grasps: Sequence[str] = ()
) -> str:
    """Choose the site or body that is the TCP: the named one, or the only one it can be.

    Without a name, in this order: the only site called like a TCP; the middle between the pads of
    the only gripper; as for URDFs, see `find_tcp`.

    Args:
        grasps: links in the middle between pads.

    Raises:
        ConfigError: there is no such site or body, or no joint or a free one moves it, or there are
            several.
    """
    if tcp is None:
        site = _find_site(names, tree)
        if site is None and len(grasps) == 1:
            return grasps[0]
        return site or find_tcp(tree)
    if tcp in tree.links:
        return tcp
    if tcp in names.bodies or tcp in names.sites:
        index = names.sites.index(tcp) if tcp in names.sites else None
        body = names.bodies.index(tcp) if index is None else int(file.model.site_bodyid[index])
        for above in names.list_path(body):
            joint = names.find_free_joint(above)
            if joint is not None:
                raise ConfigError(
                    f"{file.source}: joint {names.joints[joint]!r} on the way to {tcp!r} is free "
                    "or a ball joint; an arm has hinge and slide joints"
                )
        raise ConfigError(
            f"{file.source}: {tcp!r} is not on the arm of {tree.root!r}; choose another base with "
            "--base"
        )
    raise unknown(f"TCP, a site or body of {file.source},", tcp, tree.links)


def _find_site(names: Names, tree: Tree) -> str | None:
    """Find the only site, on a body that joints move, with the most telling name."""
    sites = [site for site in names.sites if site in tree.links]
    for name in _SITES:
        ends = (f"_{name}", f"/{name}", f"-{name}")
        named = [site for site in sites if site == name or site.endswith(ends)]
        named = [site for site in named if any(joint.moves for joint in tree.find_path(site))]
        named = [site for site in named if not _has_mimic(tree, site)]
        if len(named) > 1:
            choice = join_names(named)
            raise ConfigError(
                f"{tree.source}: several sites could be the TCP; choose one with --tcp: {choice}, "
                "or one arm with --base"
            )
        if named:
            return named[0]
    return None


def _has_mimic(tree: Tree, link: str) -> bool:
    return any(joint.mimic is not None for joint in tree.find_path(link))


def list_arm_joints(file: CompiledFile, names: Names, tree: Tree, tcp: str) -> list[Joint]:
    """List the joints of the arm, from base to TCP.

    Raises:
        ConfigError: there are none, one follows another, one slides without limits, or a parallel
            linkage ties the arm.
    """
    joints = list_moving_joints(tree, tcp)
    for joint in joints:
        if joint.kind == "prismatic" and joint.lower is None:
            raise ConfigError(
                f"{file.source}: slide joint {joint.name!r} has no limits; add "
                'range="LOWER UPPER" [m]'
            )
    _check_ties(file, names, [names.joints.index(joint.name) for joint in joints])
    return joints


def _check_ties(file: CompiledFile, names: Names, arm: list[int]) -> None:
    """Check that no constraint closes a loop over a joint (index) of the arm."""
    for kind, ends in iter_ties(file.model):
        if any(file.model.body_mocapid[end] >= 0 for end in ends if end >= 0):
            continue  # what leads a simulated hand is no part of it
        first, second = (set(names.list_path(end)) for end in ends)
        loop = {joint for body in first ^ second for joint in names.list_joints(body)}
        if tied := [names.joints[joint] for joint in arm if joint in loop]:
            pair = " and ".join(repr(names.bodies[end]) for end in ends)
            raise ConfigError(
                f"{file.source}: a {kind} constraint of {pair} makes joint {tied[0]!r} part of a "
                "parallel linkage; an arm is serial"
            )
