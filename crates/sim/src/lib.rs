//! Test only: devices with faults, and the kernel's btrfs as an oracle.
