"""An elastic parameter server on reliable and transient hosts (AgileML; Harlap thesis, 4.2): its data path."""
