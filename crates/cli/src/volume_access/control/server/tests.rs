//! Tests for the users that are served, and for the mount that is meant.

use std::ffi::OsStr;
use std::io::Read;
use std::thread;

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use ubtrfs::{MemDevice, Mkfs};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::OpenOptions;
use ubtrfs_fuse::mount::{LiveOptions, Nonce};

use super::*;
use crate::invocation::command_line::PROGRAM;
use crate::volume_access::session::{MountPath, ServedMount};

const LEN_BYTES: u64 = 256 << 20;
const STRANGER: u32 = 1002;
/// The number of no device.
const DEVICE: (u32, u32) = (u32::MAX, 0);

fn volume() -> Arc<Volume> {
    let device = MemDevice::new(LEN_BYTES);
    let planned = Mkfs::default().plan(&[LEN_BYTES]).unwrap();
    planned
        .write(&[(std::path::Path::new("memory"), &device)], &mut ())
        .unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let devices = vec![(PathBuf::from("memory"), device)];
    Volume::from_devices(devices, &OpenOptions::new().writable(true)).unwrap()
}

fn served(volume: &Arc<Volume>) -> Served {
    Served {
        volume: Arc::clone(volume),
        mount: ServedMount {
            root: volume.root_dir(RootId::FS_TREE).unwrap(),
            changes: None,
            pages: None,
            device: DEVICE,
            live: LiveOptions::default(),
            stats: None,
        },
        point: ControlPoint::default(),
        teardown: None,
        unmount_clients: UnmountClients::default(),
        // A stranger has no rights even if everything is allowed.
        is_fakeroot: true,
        program: PROGRAM,
    }
}

/// Creates a subvolume through a mount as some user, and returns the exit code if there is one.
fn create_as(address: &Address, user: u32, device: (u32, u32), name: &str) -> Option<u8> {
    let socket = address.abstract_socket().unwrap();
    let asking = move |name: String| {
        if geteuid().as_raw() != user {
            let uid = Uid::from_raw(user);
            // Changes only this thread.
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
        let mut socket = UnixStream::connect_addr(&socket).unwrap();
        let nonce = Nonce([7; 16]);
        if !protocol::greet(&socket, nonce).is_ok_and(|is_ready| is_ready) {
            return None;
        }
        let words = ["ubtrfs", "subvolume", "create", "-q", &name];
        let request = Request {
            device,
            mountpoint: b"/mnt".to_vec(),
            paths: vec![MountPath {
                written: name.clone().into_bytes(),
                path: format!("/{name}").into_bytes(),
                is_read_only: false,
            }],
            args: words
                .map(|word| OsStr::new(word).to_owned().into_vec())
                .to_vec(),
            ..Request::default()
        };
        // The connection of a refused client may be closed before its request is complete.
        let _ = request.send(&socket, io::stderr(), io::stderr(), None);
        let mut code = [0];
        match socket.read(&mut code) {
            Ok(1) => Some(code[0]),
            _ => None,
        }
    };
    let name = name.to_owned();
    thread::spawn(move || asking(name)).join().unwrap()
}

#[test]
fn a_stranger_gets_no_answer() {
    let volume = volume();
    let served = served(&volume);
    let root = served.mount.root;
    let address = Address::new();
    let mut control = Control::start_with(served, address.clone(), None).unwrap();
    let is_there = |name: &str| volume.lookup(root, name.as_bytes()).unwrap().is_some();
    let us = geteuid().as_raw();
    assert_eq!(create_as(&address, us, DEVICE, "ours"), Some(0));
    assert!(is_there("ours"));
    if geteuid().is_root() {
        assert_eq!(create_as(&address, STRANGER, DEVICE, "theirs"), None);
        assert!(!is_there("theirs"));
    } else {
        ubtrfs_sim::skip("only root can become a stranger")
    }
    control.end().unwrap();
}

#[test]
fn a_command_for_another_mount_gets_no_answer() {
    let volume = volume();
    let served = served(&volume);
    let root = served.mount.root;
    let address = Address::new();
    let mut control = Control::start_with(served, address.clone(), None).unwrap();
    let us = geteuid().as_raw();
    for device in [(DEVICE.0, 1), (0, DEVICE.1)] {
        assert_eq!(create_as(&address, us, device, "new"), None);
    }
    assert!(volume.lookup(root, b"new").unwrap().is_none());
    control.end().unwrap();
}
