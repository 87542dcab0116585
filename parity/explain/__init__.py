"""Why a key differs: where it was born, by which op, on which inputs."""
