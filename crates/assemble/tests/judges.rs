//! The tools of Linux as judges: of the disks that tests write, and by disks of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_assemble::{Assembly, Contents, Disk};
use ubtrfs_device::{Access, FileDevice};
use ubtrfs_sim::kernel::LoopDevice;
use ubtrfs_sim::{
    LvmGroup, LvmSegment, LvmVolume, MdArray, MdMetadata, Scratch, is_root_or_skip, skip,
};

/// Runs a program, and returns its output. Returns None if it does not exist.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).env("PATH", path).args(args).output();
    let Ok(output) = output else {
        skip(format!("no {program}"));
        return None;
    };
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{program} {args:?}: {stdout}{stderr}"
    );
    Some(stdout.into_owned())
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn mdadm_accepts_written_members() {
    let folder = Scratch::new().expect("there is room");
    for (level, layout, shown) in [
        (1, 0, "raid1"),
        (5, 2, "raid5"),
        (6, 2, "raid6"),
        (10, 0x102, "raid10"),
        (0, 2, "raid0"),
        (-1, 0, "linear"),
    ] {
        for metadata in [MdMetadata::End, MdMetadata::Start, MdMetadata::AfterStart] {
            let array = MdArray {
                metadata,
                ..MdArray::new(level, layout, 4)
            };
            let member = array.write(&vec![1; 1 << 20]).swap_remove(2);
            let path = folder.path().join("member");
            fs::write(&path, member).expect("there is room");
            let Some(examined) = run("mdadm", &["--examine", path_text(&path)]) else {
                return;
            };
            for line in [
                &*format!("Raid Level : {shown}"),
                "Device Role : Active device 2",
                "Array State : AAAA",
                "State : clean",
                "- correct",
            ] {
                assert!(examined.contains(line), "{line}: {examined}");
            }
        }
    }
}

#[test]
fn mdadm_accepts_members_of_metadata_0_90() {
    let folder = Scratch::new().expect("there is room");
    for (level, layout, shown) in [
        (1, 0, "raid1"),
        (5, 3, "raid5"),
        (6, 2, "raid6"),
        (10, 0x102, "raid10"),
        (0, 0, "raid0"),
        (-1, 0, "linear"),
    ] {
        let array = MdArray {
            metadata: MdMetadata::Version0,
            ..MdArray::new(level, layout, 4)
        };
        let member = array.write(&vec![1; 1 << 20]).swap_remove(2);
        let path = folder.path().join("member");
        fs::write(&path, member).expect("there is room");
        let Some(examined) = run("mdadm", &["--examine", path_text(&path)]) else {
            return;
        };
        let mut lines = vec![
            "Version : 0.90.00".to_owned(),
            format!("Raid Level : {shown}"),
            "Raid Devices : 4".to_owned(),
            "State : clean".to_owned(),
            "- correct".to_owned(),
            "Events : 42".to_owned(),
            "this     2       8       33        2      active sync".to_owned(),
        ];
        if level == 5 {
            lines.push("Layout : right-symmetric".to_owned());
            lines.push("Chunk Size : 64K".to_owned());
        }
        for line in lines {
            assert!(examined.contains(&line), "{line}: {examined}");
        }
    }
}

/// Returns options that restrict `lvm` to some devices.
fn only(devices: &[&Path]) -> String {
    let accepted: Vec<String> = devices
        .iter()
        .map(|device| format!("\"a|^{}$|\"", device.display()))
        .collect();
    format!(
        "devices {{ use_devicesfile=0 filter=[{},\"r|.*|\"] }} global {{ locking_type=0 }} \
         activation {{ udev_sync=0 udev_rules=0 monitoring=0 }} backup {{ backup=0 archive=0 }}",
        accepted.join(",")
    )
}

#[test]
fn lvm_accepts_written_groups() {
    if !is_root_or_skip() || run("lvm", &["version"]).is_none() {
        return;
    }
    let striped = LvmSegment {
        kind: "striped".to_owned(),
        extents: 4,
        stripes: vec![(0, 8), (1, 0)],
        stripe_bytes: 16 << 10,
    };
    let volume = LvmVolume {
        name: "lv".to_owned(),
        segments: vec![LvmSegment::linear(1, 5, 3), striped],
    };
    let group = LvmGroup {
        text_offset: (60 << 10) - 200,
        ..LvmGroup::new("vg1000", vec![volume])
    };
    let folder = Scratch::new().expect("there is room");
    let mut disks = vec![vec![0; 4 << 20]; 2];
    group.write(&mut disks, &[&[]]);
    let paths: Vec<PathBuf> = (0..2)
        .map(|disk| folder.path().join(format!("{disk}")))
        .collect();
    let loops: Vec<LoopDevice> = paths
        .iter()
        .zip(disks)
        .map(|(path, disk)| {
            fs::write(path, disk).expect("there is room");
            LoopDevice::attach(path).expect("a loop device")
        })
        .collect();
    let devices: Vec<&Path> = loops.iter().map(|device| device.path()).collect();
    let config = only(&devices);
    let fields = "lv_name,seg_start_pe,seg_size_pe,seg_pe_ranges";
    let args = [
        "lvs",
        "--config",
        &config,
        "--noheadings",
        "--separator",
        " ",
        "-o",
        fields,
    ];
    let listed = run("lvm", &args).expect("lvm exists");
    let lines: Vec<&str> = listed.lines().map(str::trim).collect();
    let [first, second] = [devices[0].display(), devices[1].display()];
    let wanted = [
        format!("lv 0 3 {second}:5-7"),
        format!("lv 3 4 {first}:8-9 {second}:0-1"),
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn labels_of_lvm_are_read() {
    if !is_root_or_skip() || run("lvm", &["version"]).is_none() {
        return;
    }
    let folder = Scratch::new().expect("there is room");
    let image = folder.file("disk", 64 << 20).expect("there is room");
    {
        let device = LoopDevice::attach(&image).expect("a loop device");
        let config = only(&[device.path()]);
        let path = path_text(device.path());
        run("lvm", &["pvcreate", "--config", &config, path]);
        run("lvm", &["vgcreate", "--config", &config, "vg1", path]);
        // Later texts are behind the first one in the ring.
        run(
            "lvm",
            &["vgchange", "--config", &config, "--addtag", "nas", "vg1"],
        );
    }
    let device = FileDevice::open(&image, Access::Read).expect("readable");
    let assembly = Assembly::of([Disk {
        path: image,
        device: Arc::new(device),
    }]);
    let [disk] = assembly.layers() else {
        panic!("{assembly:?}");
    };
    assert_eq!(disk.contents, Contents::PhysicalVolume);
    assert_eq!(disk.problem, None);
}
