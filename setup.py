"""Puts the published configs into the package; all other settings are in pyproject.toml.

An installed `official` has the files of `configs/` as `official/configs/`, where
`official.config.loader` looks for a config that is not in the working directory.
"""

import setuptools

setuptools.setup(
    packages=[
        *setuptools.find_packages(include=["official*", "tfrecords_tools*"]),
        *(f"official.configs.{kind}" for kind in ("pretrain", "finetune", "smoke", "students")),
    ],
    package_dir={"official.configs": "configs"},
    package_data={
        "official.configs": ["*/*.yaml"],
        "official.web": ["static/*", "templates/*"],
        "": ["*.yaml", "py.typed"],
    },
)
