"""Run a policy on an arm: the control loop, its worker process and latency measurements."""
