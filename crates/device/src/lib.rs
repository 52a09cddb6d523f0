//! Block devices, the set of devices of one volume, the chunk map and verified reads.
