"""For environments with goals, in tests."""


class RemembersObservations:
    """A mixin: what hindsight keeps of a moment is its observation."""

    @property
    def memory_dim(self):
        return self.o_dim

    def step(self, action):
        step = super().step(action)
        self.arrived = step.next_observation
        return step

    def memory(self, arrived=False):
        return self.arrived if arrived else self.observation

    def observe(self, memory):
        return memory
