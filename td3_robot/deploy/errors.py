"""The one error of this folder, which knows nothing of the rest of the package."""


class DeployError(ValueError):
    """A file, value or message cannot be what it has to be; the message is one line for the user."""
