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


def point_distance(p: Tensor, d: Tensor, dd: Tensor, point: Tensor) -> Tensor:
    """Compute the distance of the segment p + s d to a point; see `segment_distance`."""
    gap = point_gap(p, d, dd, point)
    return dot(gap, gap).sqrt()


def point_gap(p: Tensor, d: Tensor, dd: Tensor, point: Tensor) -> Tensor:
    """Compute the vector (3, ...) from a point to the closest one of the segment p + s d."""
    r = p - point
    return torch.addcmul(r, d, (dot(d, r) / dd.clamp(min=_TINY)).clamp(-1, 0), value=-1)


def plane_distance(p: Tensor, d: Tensor, normal: Tensor, offset: Tensor) -> Tensor:
    """Compute the signed distance of the segment p + s d to {x: normal . x <= offset}.

    Args:
        normal: (3, ...) of unit length, out of the solid.
        offset: (...) of the surface from the origin along it [m].
    """
    return dot(normal, p) - offset + dot(normal, d).clamp(max=0)


BOX_STEPS = 10
_SKIN = 1e-6  # [m] within this of a face, a point counts as outside it


def box_distance(p: Tensor, d: Tensor, length: Tensor, half: Tensor) -> Tensor:
    """Compute the signed distance of the segment p + s d to the box |x_k| <= half_k in its frame.

    Outside it is the distance of the closest point; where the segment enters the box, minus the
    depth of its deepest point below the nearest face. The signed distance to a convex body is a
    convex function, so the segment's least is found by halving the interval it lies in, by the sign
    of the slope, `BOX_STEPS` times. What that may have missed is taken off: the result is never
    above the true one, and below it by at most length / 2**(BOX_STEPS + 1), 0.2 mm for a segment of
    0.4 m.

    Args:
        p, d: (3, ...) start and extent of the segment in the frame of the box [m].
        length: of d, in a shape that broadcasts [m].
        half: (3, ...) half of the box's sides [m].
    """
    with torch.no_grad():  # where the least is, its place does not change it to first order
        s = torch.full_like(p[0], 0.5)
        for step in range(2, BOX_STEPS + 2):
            slope = _compute_box_slope(torch.addcmul(p, d, s), d, half)
            s -= slope.sign_().mul_(0.5**step)
    beyond = torch.addcmul(p, d, s).abs() - half
    outside = beyond.clamp(min=0)
    return (
        dot(outside, outside).sqrt()
        + _find_largest(beyond).clamp(max=0)
        - length * 0.5 ** (BOX_STEPS + 1)
    )


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
    """The largest of three components, (3, ...) -> (...)."""
    return torch.maximum(torch.maximum(x[0], x[1]), x[2])


_FLAT = 1e-7  # [m2] a slope that is rounding: 1e-7 of a metre times the segment's length


def box_gap(p: Tensor, d: Tensor, half: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the point of the segment p + s d nearest to the box |x_k| <= half_k, in the box's frame.

    Half the squared distance to the box has a slope along the segment that rises, and is linear
    between the places where the segment crosses the planes of the faces; so its zero is found by
    interpolation, without iterating. The slope is zero all the way inside the box, and the middle
    of that way is taken: there the depth is at least half of the greatest.

    Args:
        p, d: (3, ...) start and extent of the segment in the frame of the box [m].
        half: (3, ...) half of the box's sides [m].

    Returns:
        Signed distance (...), negative by the depth below the nearest face [m]; the unit vector (3,
        ...) along which it grows, from the closest point of the box outside, out of the nearest
        face inside; and s (...).
    """
    step = d + torch.full_like(d, 1e-9).copysign(d)  # not to divide by zero
    crossings = torch.cat(((half - p) / step, (-half - p) / step))
    ends = torch.zeros_like(crossings[:2])
    ends[1] = 1.0
    s = torch.cat((ends, crossings.clamp_(0, 1)))  # (8, ...)
    x = torch.addcmul(p[:, None], d[:, None], s)  # (3, 8, ...)
    slope = dot(x - x.clamp(-half[:, None], half[:, None]), d[:, None].expand_as(x))
    falls = slope < _FLAT
    rises = slope > -_FLAT
    lower = (s * falls).amax(0)
    upper = torch.where(rises, s, 1.0).amin(0)
    before = torch.where(falls, slope, -torch.inf).amax(0).clamp(-1e9, 0.0)
    after = torch.where(rises, slope, torch.inf).amin(0).clamp(0.0, 1e9)
    share = torch.where(before < after, -before / (after - before).clamp(min=1e-30), 0.5)
    nearest = lower + share * (upper - lower)
    x = torch.addcmul(p, d, nearest)

    beyond = x.abs() - half
    deepest = _find_largest(beyond)
    outside = beyond.clamp(min=0)
    distance = dot(outside, outside).sqrt()
    inward = beyond.ge(deepest).to(x.dtype)  # out of the nearest face, where inside
    normal = torch.where(distance > _SKIN, outside / distance.clamp(min=_SKIN), inward)
    return distance + deepest.clamp(max=0), normal.copysign(x), nearest
