//! Streams of the kernel, received into mounts: the kernel's, and ours through the server process.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, progs_verdict};

use crate::hostile::{UUID, mkdir, refused_commands, snapshot_of, stream, subvol};
use crate::source::{OURS, SourceVolume, empty_image, ready, receive, run, shell, shown};
use ubtrfs_stream::Command;

#[test]
fn streams_of_the_kernel_are_received_into_its_mounts() {
    let test = "receive into mounts of the kernel";
    if !ready(test) {
        return;
    }
    let source = SourceVolume::make(test);
    for options in ["--proto 1", "--proto 2 --compressed-data"] {
        let series = source.send(options);
        let volume = KernelVolume::make(&MkfsSpec::new().device_bytes(1 << 30)).unwrap();
        let mount = volume.mount("").unwrap();
        for (program, name) in [("btrfs", "wanted"), (OURS, "found")] {
            let dir = mount.path().join(name);
            shell(mount.path(), &format!("btrfs -q subvolume create {name}"));
            receive(program, &series, dir.as_os_str());
            source.assert_received(&format!("{options} {name}"), &dir);
        }
        let wanted = shown(&mount.path().join("wanted"));
        assert_eq!(shown(&mount.path().join("found")), wanted);
        mount.unmount().unwrap();
        assert_eq!(progs_verdict(volume.devices(), true), Ok(()));
    }
}

/// One of our mounts.
struct OurMount<'a>(&'a Path);

impl OurMount<'_> {
    fn new<'a>(image: &Path, dir: &'a Path) -> OurMount<'a> {
        std::fs::create_dir(dir).unwrap();
        let args: [&OsStr; 3] = ["mount".as_ref(), image.as_os_str(), dir.as_os_str()];
        let output = run(OURS, &args);
        assert!(output.status.success(), "{output:?}");
        OurMount(dir)
    }
}

impl Drop for OurMount<'_> {
    fn drop(&mut self) {
        run(OURS, &["umount".as_ref(), self.0.as_os_str()]);
    }
}

#[test]
fn streams_of_the_kernel_are_received_into_mounts_of_ours() {
    let test = "receive into mounts of ours";
    if !ready(test) {
        return;
    }
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let source = SourceVolume::make(test);
    let series = source.send("--proto 2 --compressed-data");
    let scratch = Scratch::new().unwrap();
    let (image, dir) = (scratch.path().join("v.img"), scratch.path().join("mnt"));
    empty_image(&image);
    let mount = OurMount::new(&image, &dir);
    std::fs::create_dir(dir.join("in")).unwrap();
    // A listing in the kernel's cache must be updated.
    assert_eq!(std::fs::read_dir(dir.join("in")).unwrap().count(), 0);
    receive(OURS, &series, dir.join("in").as_os_str());
    assert_eq!(std::fs::read_dir(dir.join("in")).unwrap().count(), 4);
    source.assert_received(test, &dir.join("in"));
    drop(mount);
    assert_eq!(progs_verdict(std::slice::from_ref(&image), true), Ok(()));
    let kernels = KernelMount::new(std::slice::from_ref(&image), "ro").unwrap();
    source.assert_received(test, &kernels.path().join("in"));
    kernels.unmount().unwrap();
}

/// Standard input is also passed on, and an error is reported to the caller.
#[test]
fn a_mount_of_ours_reads_standard_input() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let (image, dir) = (scratch.path().join("v.img"), scratch.path().join("mnt"));
    empty_image(&image);
    let mount = OurMount::new(&image, &dir);
    let whole = stream(&[subvol(b"s"), Command::End]);
    let (cut, shown) = (&whole[..whole.len() - 10], dir.display());
    for (bytes, code) in [(&whole[..], 0), (cut, 1)] {
        let file = scratch.path().join("stream");
        std::fs::write(&file, bytes).unwrap();
        let script = format!(
            "cat {} | {OURS} receive {shown} 2>&1; echo ${{PIPESTATUS[1]}}",
            file.display()
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &script])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with(&format!("{code}\n")), "{text}");
        assert!(text.starts_with("At subvol s\n") || code == 1, "{text}");
        let _ = std::fs::remove_dir(dir.join("s"));
    }
    drop(mount);
    assert_eq!(progs_verdict(&[image], true), Ok(()));
}

/// The client names the unfinished subvolume, as after a failed receive.
#[test]
fn a_mount_that_ends_leaves_the_name_of_what_is_unfinished() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let (image, dir) = (scratch.path().join("v.img"), scratch.path().join("mnt"));
    empty_image(&image);
    let mount = OurMount::new(&image, &dir);
    let mut receiving = std::process::Command::new(OURS)
        .args(["receive".as_ref(), dir.as_os_str()])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The last command may wait for the next one.
    let begun = stream(&[subvol(b"s"), mkdir(b"d"), mkdir(b"e")]);
    let mut input = receiving.stdin.take().unwrap();
    input.write_all(&begun).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !dir.join("s/d").exists() {
        assert!(Instant::now() < until, "nothing is received");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(mount);
    let output = receiving.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        stderr.contains("subvolume 's' is not finished, and writable"),
        "{stderr}"
    );
    drop(input);
    assert_eq!(progs_verdict(&[image], true), Ok(()));
}

#[test]
fn streams_lead_nowhere_else_in_mounts_of_the_kernel() {
    let test = "hostile streams into mounts of the kernel";
    if !ready(test) {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let dir = mount.path().join("dir");
    shell(mount.path(), "mkdir dir outside; echo kept > outside/file");
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("stream");
    let receive = |bytes: Vec<u8>| {
        std::fs::write(&file, bytes).unwrap();
        let args: [&OsStr; 4] = [
            "receive".as_ref(),
            "-f".as_ref(),
            file.as_os_str(),
            dir.as_os_str(),
        ];
        run(OURS, &args)
    };
    for (commands, message) in refused_commands() {
        let commands = [&[subvol(b"s")][..], &commands, &[Command::End]].concat();
        let output = receive(stream(&commands));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}: {stderr}");
        assert!(stderr.contains("subvolume 's' is not finished"), "{stderr}");
        shell(&dir, "touch s; btrfs -q subvolume delete s");
        let names: Vec<_> = std::fs::read_dir(mount.path().join("outside"))
            .unwrap()
            .collect();
        assert_eq!(names.len(), 1, "{message}");
    }
    let kept = std::fs::read(mount.path().join("outside/file")).unwrap();
    assert_eq!(kept, b"kept\n");
    // A subvolume that has been changed cannot be a parent.
    let output = receive(stream(&[subvol(b"s"), Command::End]));
    assert!(output.status.success(), "{output:?}");
    let snapshot = snapshot_of(UUID);
    shell(&dir, "btrfs property set -f s ro false; touch s/f");
    let output = receive(stream(&[snapshot, Command::End]));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    mount.unmount().unwrap();
}
