//! overlayfs on a mount, as podman and Docker use it: files stay readable after the kernel has evicted all
//! unused names and inodes.
//!
//! overlayfs looks up the origin of each copied-up file by its handle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::served::{Place, Server, alone, assert_ok, can_mount};

/// An overlay whose layers are all in one mount. Dropping it unmounts it.
struct Overlay {
    shown: PathBuf,
}

impl Overlay {
    /// Creates the missing layers, and mounts the overlay.
    fn over(dir: &Path, options: &str) -> Overlay {
        let layer = |name: &str| {
            let layer = dir.join(name);
            fs::create_dir_all(&layer).unwrap();
            layer
        };
        let data = format!(
            "lowerdir={},upperdir={},workdir={},{options}",
            layer("lower").display(),
            layer("upper").display(),
            layer("work").display()
        );
        let shown = layer("shown");
        let data = std::ffi::CString::new(data).unwrap();
        let made = mount(
            "overlay",
            &shown,
            "overlay",
            MountFlags::empty(),
            Some(data.as_c_str()),
        );
        made.unwrap();
        Overlay { shown }
    }

    fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.shown.join(name));
        text.unwrap_or_else(|error| error.to_string())
    }

    fn append(&self, name: &str, text: &str) {
        use std::io::Write;
        let file = fs::OpenOptions::new()
            .append(true)
            .open(self.shown.join(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        unmount(&self.shown, UnmountFlags::DETACH).unwrap();
    }
}

/// Makes the kernel evict all unused names and inodes, as it does when memory is low.
fn forget_inodes() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn has_overlayfs_or_skip() -> bool {
    let _ = Command::new("modprobe").args(["-q", "overlay"]).status();
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let is_known = known.lines().any(|line| line.ends_with("\toverlay"));
    if !is_known {
        ubtrfs_sim::skip_optional("the kernel has no overlayfs");
    }
    is_known
}

fn serve_by(place: &Place, transport: &str) -> Option<Server> {
    if transport == "uring" {
        return place.serve_over_uring("rw").ok();
    }
    Some(place.serve_with("transport=classic"))
}

const FILES: [&str; 4] = ["one", "two", "low", "dir/in"];

fn expected(name: &str) -> String {
    if name == "low" {
        format!("{name}\n")
    } else {
        format!("{name}\nmore\n")
    }
}

#[test]
fn files_that_were_copied_up_stay_readable_without_caches() {
    if !can_mount() || !has_overlayfs_or_skip() {
        return;
    }
    let _alone = alone();
    for transport in ["classic", "uring"] {
        let place = Place::new(256 << 20);
        let Some(mut server) = serve_by(&place, transport) else {
            ubtrfs_sim::skip_optional("no FUSE over io_uring");
            continue;
        };
        let lower = place.mountpoint.join("lower");
        fs::create_dir_all(lower.join("dir")).unwrap();
        for name in FILES {
            fs::write(lower.join(name), format!("{name}\n")).unwrap();
        }
        let overlay = Overlay::over(&place.mountpoint, "index=off");
        for name in FILES.into_iter().filter(|name| *name != "low") {
            overlay.append(name, "more\n");
        }
        let all_are_right = |overlay: &Overlay, when: &str| {
            for round in 0..3 {
                forget_inodes();
                for name in FILES {
                    let found = overlay.read(name);
                    assert_eq!(found, expected(name), "{transport} {when} {round} {name}");
                }
            }
        };
        all_are_right(&overlay, "after the copies");
        // The kernel cannot evict open files.
        let held = fs::File::open(overlay.shown.join("one")).unwrap();
        all_are_right(&overlay, "with one open");
        assert_eq!(held.metadata().unwrap().len(), expected("one").len() as u64);
        drop((held, overlay));
        place.umount();
        assert!(server.end().is_some());
        let Some(mut server) = serve_by(&place, transport) else {
            continue;
        };
        let overlay = Overlay::over(&place.mountpoint, "index=off");
        all_are_right(&overlay, "in the next mount");
        drop(overlay);
        place.umount();
        assert!(server.end().is_some());
    }
}

#[test]
fn names_of_one_file_stay_together_in_an_overlay_with_an_index() {
    if !can_mount() || !has_overlayfs_or_skip() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let lower = place.mountpoint.join("lower");
    fs::create_dir(&lower).unwrap();
    fs::write(lower.join("a"), "old\n").unwrap();
    fs::hard_link(lower.join("a"), lower.join("b")).unwrap();
    let overlay = Overlay::over(&place.mountpoint, "index=on");
    overlay.append("a", "new\n");
    for when in ["at once", "without caches", "in the next overlay"] {
        if when == "in the next overlay" {
            unmount(&overlay.shown, UnmountFlags::empty()).unwrap();
            forget_inodes();
            std::mem::forget(Overlay::over(&place.mountpoint, "index=on"));
        }
        forget_inodes();
        for name in ["a", "b"] {
            assert_eq!(overlay.read(name), "old\nnew\n", "{when} {name}");
        }
    }
    drop(overlay);
    place.umount();
    assert!(server.end().is_some());
}

/// podman, with all its data in one folder.
struct Podman {
    folder: PathBuf,
    storage: PathBuf,
}

impl Podman {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(&self.storage);
        command
            .arg("--runroot")
            .arg(self.folder.join("run"))
            .arg("--tmpdir")
            .arg(self.folder.join("tmp"))
            .args([
                "--storage-driver",
                "overlay",
                "--cgroup-manager",
                "cgroupfs",
            ])
            .args(["--events-backend", "none", "--runtime", "runc"])
            .args(words)
            .env("TMPDIR", &self.folder)
            .current_dir(&self.folder);
        command
    }

    fn said(&self, words: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(words).output().unwrap();
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "podman {words:?}: {errors}");
        String::from_utf8(stdout).unwrap()
    }

    /// Runs a script in a container of the image.
    fn run(&self, name: &str, script: &str) -> String {
        let mut words = vec![
            "run",
            "--network",
            "none",
            "--name",
            name,
            "--pull",
            "never",
        ];
        // podman's default limits are higher than root may set in a container.
        words.extend([
            "--ulimit",
            "nofile=1000:1000",
            "--ulimit",
            "nproc=1000:1000",
        ]);
        words.extend([IMAGE, "/bin/busybox", "sh", "-c", script]);
        self.said(&words)
    }

    /// Unmounts everything below the mount.
    fn close(&self) {
        let _ = unmount(self.storage.join("overlay"), UnmountFlags::DETACH);
    }
}

const IMAGE: &str = "localhost/ubtrfs-test";
const RECIPE: &str = r#"FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "sh", "-c", "echo one > /one; echo two > /two; /bin/busybox mkdir /dir; echo in > /dir/in"]
RUN ["/bin/busybox", "sh", "-c", "echo built >> /one; /bin/busybox rm /two; /bin/busybox mv /dir /moved"]
"#;

/// Returns a static program with a shell for containers. Skips the test if podman cannot run.
fn has_podman_or_skip() -> Option<PathBuf> {
    let runs = |program: &str| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let shells = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let is_static = |path: &&PathBuf| {
        let program = fs::read(path).unwrap_or_default();
        !program.is_empty() && !program.windows(9).any(|bytes| bytes == b"/ld-linux")
    };
    let shell = shells.iter().find(is_static).cloned();
    if runs("podman") && runs("runc") && shell.is_some() {
        return shell;
    }
    ubtrfs_sim::skip_optional("needs the packages podman, runc and busybox-static");
    None
}

#[test]
fn podman_builds_and_runs_containers_on_a_mount() {
    if !can_mount() || !has_overlayfs_or_skip() {
        return;
    }
    let Some(shell) = has_podman_or_skip() else {
        return;
    };
    let _alone = alone();
    let place = Place::new(1 << 30);
    let folder = place.scratch.path().join("podman");
    let recipe = folder.join("recipe");
    fs::create_dir_all(&recipe).unwrap();
    fs::copy(shell, recipe.join("busybox")).unwrap();
    fs::write(recipe.join("Dockerfile"), RECIPE).unwrap();
    let podman = Podman {
        folder,
        storage: place.mountpoint.join("storage"),
    };
    let mut server = place.serve();
    podman.said(&[
        "build",
        "--network",
        "host",
        "--isolation",
        "chroot",
        "-t",
        IMAGE,
        "recipe",
    ]);
    let and_show = |script: &str| format!("{script}; /bin/busybox cat /one /moved/in");
    let first = podman.run(
        "first",
        &and_show("echo run >> /one; echo run >> /moved/in"),
    );
    assert_eq!(first, "one\nbuilt\nrun\nin\nrun\n");
    // The container stays mounted while the kernel evicts inodes.
    let root = podman.said(&["mount", "first"]);
    let root = Path::new(root.trim_end()).to_owned();
    for round in 0..3 {
        forget_inodes();
        let read = |name: &str| {
            let text = fs::read_to_string(root.join(name));
            text.unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(read("one"), "one\nbuilt\nrun\n", "{round}");
        assert_eq!(read("moved/in"), "in\nrun\n", "{round}");
        assert!(!root.join("two").exists() && !root.join("dir").exists());
    }
    podman.said(&["umount", "first"]);
    podman.said(&["commit", "-q", "first", "localhost/second"]);
    podman.close();
    place.umount();
    assert!(server.end().is_some());

    // A new mount, as after a reboot.
    fs::remove_dir_all(podman.folder.join("run")).unwrap();
    let mut server = place.serve();
    forget_inodes();
    let again = podman.run("again", &and_show("echo again >> /one"));
    assert_eq!(again, "one\nbuilt\nagain\nin\n");
    let changed = podman.said(&["diff", "again"]);
    assert!(changed.lines().any(|line| line == "C /one"), "{changed}");
    podman.said(&["rm", "first", "again"]);
    podman.said(&["rmi", "-a", "-f"]);
    podman.close();
    place.umount();
    assert!(server.end().is_some());
    assert_ok(Command::new("btrfs").arg("check").arg(&place.image));
}
