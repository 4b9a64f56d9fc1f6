"""The commands: parse, build, call. The only room that joins the learner and the simulator."""
