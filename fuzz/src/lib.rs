//! Fuzz targets, which are in `tests`. A package needs a library, so this one is empty.
