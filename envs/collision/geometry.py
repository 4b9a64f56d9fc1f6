"""Distances between segments, points, planes and boxes, elementwise over large batches.

Points and vectors are component-first, (3, ...) with the batch last and contiguous, so that each
operation runs over long vectors. A capsule's distance is its segment's distance less its radius.
Nothing here waits for the device.
"""

import torch
from torch import Tensor

# [m2] below any squared length that matters; keeps a segment of no length from dividing by zero
_TINY = 1e-12


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Compute the inner product over the first axis of two (3, ...)."""
    return torch.addcmul(torch.addcmul(a[0] * b[0], a[1], b[1]), a[2], b[2])


def segment_distance(p: Tensor, d: Tensor, u: Tensor, e: Tensor, dd: Tensor, ee: Tensor) -> Tensor:
    """Compute the distance between the segments p + s d and u + t e, with s and t in [0, 1].

    Ericson, Real-Time Collision Detection (2005), section 5.1.9: the closest points of the two
    lines, clamped to the first segment, then each parameter once more the best for the other. Every
    step of that minimises a convex function along one coordinate, so it needs no case for parallel
    segments (where the first step may land anywhere) nor for segments of no length.

    Args:
        p, d: (3, ...) start and extent of the first segment [m].
        u, e: (3, ...) the second's.
        dd, ee: the squared lengths of d and e, which rotation leaves alone, in a shape that
            broadcasts [m2].

    Returns:
        (...) [m].
    """
    gap, _ = segment_gap(p, d, u, e, dd, ee)
    return dot(gap, gap).sqrt()


def segment_gap(
    p: Tensor, d: Tensor, u: Tensor, e: Tensor, dd: Tensor, ee: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the vector (3, ...) from the second segment's closest point to the first's, and its
    s (...).

    Arguments as in `segment_distance`.
    """
    r = p - u
    de = dot(d, e)
    dr = dot(d, r)
    er = dot(e, r)
    dd = dd.clamp(min=_TINY)
    ee = ee.clamp(min=_TINY)
    room = torch.addcmul(dd * ee, de, de, value=-1).clamp_(min=_TINY**2)
    s = torch.addcmul(de * er, dr, ee, value=-1).div(room).clamp_(0, 1)
    t = torch.addcmul(er, de, s).div(ee).clamp_(0, 1)
    s = torch.mul(de, t).sub_(dr).div(dd).clamp_(0, 1)
    return torch.addcmul(torch.addcmul(r, d, s), e, t, value=-1), s


def point_gap(p: Tensor, d: Tensor, dd: Tensor, point: Tensor) -> Tensor:
    """Compute the vector (3, ...) from a point to the closest one of the segment p + s d."""
    r = p - point
    return torch.addcmul(r, d, (dot(d, r) / dd.clamp(min=_TINY)).clamp(-1, 0), value=-1)


def plane_gap(
    p: Tensor, d: Tensor, normal: Tensor, offset: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Find the end of the segment p + s d that is lowest over {x: normal . x <= offset}.

    Args:
        normal: (3, ...) of unit length, out of the solid.
        offset: (...) of the surface from the origin along it [m].

    Returns:
        Its signed distance (...), and itself (3, ...) [m].
    """
    point = torch.addcmul(p, d, (dot(normal, d) < 0).to(p.dtype))
    return dot(normal, point) - offset, point


BOX_STEPS = 10
_SKIN = 1e-6  # [m] within this of a face, a point counts as outside a box


def box_gap(p: Tensor, d: Tensor, half: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the point of the segment p + s d where its signed distance to a box is least.

    The signed distance is that to the box outside it, and minus the depth below the nearest face
    inside. What is found is never below the least, and above it by at most the segment's length /
    2**(BOX_STEPS + 1), 0.2 mm for 0.4 m: inside, and near an edge that the segment passes closely.
    Elsewhere it is exact.

    Args:
        p, d: (3, ...) start and extent of the segment in the frame of the box |x_k| <= half_k [m].
        half: (3, ...) half of the box's sides [m].

    Returns:
        Signed distance (...) [m]; the unit vector (3, ...) along which it grows, from the closest
        point of the box outside, out of the nearest face inside; and s (...).
    """
    # where the least is, its place does not change it to first order
    s = _find_nearest(p.detach(), d.detach(), half.detach())
    x = torch.addcmul(p, d, s)
    beyond = x.abs() - half
    deepest = _find_largest(beyond)
    outside = beyond.clamp(min=0)
    distance = dot(outside, outside).sqrt()
    inward = beyond.ge(deepest).to(x.dtype)  # out of the nearest face, where inside
    normal = torch.where(distance > _SKIN, outside / distance.clamp(min=_SKIN), inward)
    return distance + deepest.clamp(max=0), normal.copysign(x), s


def _find_nearest(p: Tensor, d: Tensor, half: Tensor) -> Tensor:
    """Find the s (...) of the point with the least signed distance to a box, see `box_gap`.

    The signed distance to a convex body is a convex function, so the interval that the least lies
    in is halved by the sign of the slope. Outside, half the squared distance has a slope that is
    linear between the planes of the faces, so that Newton's step is then exact, but where such a
    plane lies within it; it is held to the last interval.
    """
    s = torch.full_like(p[0], 0.5)
    for step in range(2, BOX_STEPS + 2):
        slope = _compute_box_slope(torch.addcmul(p, d, s), d, half)
        s -= slope.sign_().mul_(0.5**step)
    x = torch.addcmul(p, d, s)
    beyond = x.abs().sub_(half)
    moving = beyond.gt(0).to(x.dtype).mul_(d)
    slope = dot(beyond.copysign_(x), moving)
    last = 0.5 ** (BOX_STEPS + 1)
    return s.sub_(slope.div_(dot(moving, moving).clamp_(min=_TINY)).clamp_(-last, last))


def _compute_box_slope(x: Tensor, d: Tensor, half: Tensor) -> Tensor:
    """Compute the slope along d of the signed distance to a box at x (3, ...), but for a factor.

    Its gradient points from the closest point of the box to x outside, and out of the nearest face
    inside.
    """
    beyond = x.abs().sub_(half)
    gradient = (
        beyond.sub_(_find_largest(beyond).clamp_(max=0).sub_(_SKIN)).clamp_(min=0).copysign_(x)
    )
    return dot(gradient, d)


def _find_largest(x: Tensor) -> Tensor:
    """Find the largest of three components, (3, ...) -> (...)."""
    return torch.maximum(torch.maximum(x[0], x[1]), x[2])
