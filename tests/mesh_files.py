"""A box in a COLLADA file, and an arm of two joints whose second link is drawn with a mesh."""

from pathlib import Path

# a box of 0.3 x 0.1 x 0.05 of the file's units from its origin on
DAE = """<?xml version="1.0" encoding="utf-8"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><created>2024-01-01T00:00:00</created><modified>2024-01-01T00:00:00</modified>
    {unit}<up_axis>{up}</up_axis></asset>
  <library_geometries><geometry id="g" name="g"><mesh>
    <source id="p"><float_array id="pa" count="24">0 0 0  300 0 0  300 100 0  0 100 0
      0 0 50  300 0 50  300 100 50  0 100 50</float_array>
      <technique_common><accessor source="#pa" count="8" stride="3"><param name="X" type="float"/>
        <param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common>
    </source>
    <vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
    <triangles count="12"><input semantic="VERTEX" source="#v" offset="0"/>
      <p>0 2 1 0 3 2 4 5 6 4 6 7 0 1 5 0 5 4 1 2 6 1 6 5 2 3 7 2 7 6 3 0 4 3 4 7</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="s" name="s"><node id="n" name="n">{node}
    <instance_geometry url="#g"/></node></visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#s"/></scene>
</COLLADA>
"""
ARM = """<robot name="arm">
  <link name="base"/>
  <link name="upper"><visual><origin xyz="0.15 0 0"/><geometry><box size="0.3 0.06 0.06"/>
    </geometry></visual></link>
  <link name="fore"><visual><geometry><box size="0.05 0.05 0.05"/></geometry></visual>
    <visual><origin xyz="0 0 0.1"/><geometry><mesh filename="{mesh}" {scale}/></geometry></visual>
  </link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 0.3"/><axis xyz="0 0 1"/>
    <limit lower="-2" upper="2" velocity="2" effort="9"/></joint>
  <joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/>
    <origin xyz="0.35 0 0"/><axis xyz="0 1 0"/>
    <limit lower="0.1" upper="2.6" velocity="2" effort="9"/></joint>
</robot>
"""


def write_dae(folder: Path, metres: float | None = 0.001, up: str = "Z_UP", node: str = "") -> Path:
    file = folder / "wing.dae"
    unit = "" if metres is None else f'<unit name="u" meter="{metres}"/>'
    file.write_text(DAE.format(unit=unit, up=up, node=node))
    return file


def write_arm(folder: Path, mesh: str, scale: str = "") -> Path:
    file = folder / "arm.urdf"
    file.write_text(ARM.format(mesh=mesh, scale=scale))
    return file
