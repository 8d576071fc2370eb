"""The promises that :func:`hyperrl.envs.check_env_contract` looks at, one function each."""
