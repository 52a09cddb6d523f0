//! Each task that `cargo xtask count` counts runs. The tests use the program that is built for counting.

use std::process::Command;

#[test]
fn each_work_says_how_many_things_it_did() {
    for (name, _) in ubtrfs_layers::ALL {
        let ran = Command::new(env!("CARGO_BIN_EXE_ubtrfs-layers"))
            .args([name, "1"])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{name}: {ran:?}");
        let things = String::from_utf8(ran.stdout).unwrap();
        assert!(things.trim().parse::<u64>().unwrap() > 0, "{name}");
    }
}
