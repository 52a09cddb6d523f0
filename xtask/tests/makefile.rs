//! The Makefile uses cargo's target folder.

use std::path::Path;
use std::process::Command;

#[test]
fn targets_follow_cargos_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let goals = [
        "build",
        "demo",
        "pages",
        "deb-test",
        "static-test",
        "conform",
        "outside",
        "bench",
    ];
    for profile in ["release", "dev"] {
        let made = Command::new("make")
            .args(["--dry-run", "--no-print-directory"])
            .args(["CARGO_TARGET_DIR=/elsewhere", &format!("PROFILE={profile}")])
            .args(goals)
            .env_remove("MAKEFLAGS")
            .current_dir(&root)
            .output()
            .expect("make");
        let commands = String::from_utf8_lossy(&made.stdout);
        let stderr = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{stderr}");
        assert!(commands.contains("/elsewhere/"), "{commands}");
        let strays = commands.split_whitespace();
        let strays: Vec<&str> = strays.filter(|word| word.contains("target/")).collect();
        assert_eq!(strays, [""; 0], "{profile}: {commands}");
    }
}
