//! The kernel's side: a mount behind a loop device, and system calls.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use ubtrfs_sim::kernel::KernelMount;

use crate::Outcome;
use crate::side::{Name, Side};

pub(crate) struct Kernel {
    // Dropped before the mount, which is busy while it is open.
    top: OwnedFd,
    mount: KernelMount,
}

/// Creates a volume of `len` bytes in a new file.
pub(crate) fn make_image(path: &Path, len: u64) -> Outcome {
    std::fs::File::create(path)?.set_len(len)?;
    let made = Command::new("mkfs.btrfs").arg("-q").arg(path).status()?;
    if !made.success() {
        return Err("mkfs.btrfs failed".into());
    }
    Ok(())
}

impl Kernel {
    pub(crate) fn mount(image: &Path) -> Outcome<Kernel> {
        let mount = KernelMount::new(&[image.to_owned()], "")?;
        let top = open_dir(mount.path())?;
        Ok(Kernel { mount, top })
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }
}

fn open_dir(path: &Path) -> Outcome<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

impl Side for Kernel {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn mkdir(&self, name: &Name) -> Outcome<OwnedFd> {
        let name = name.c_str();
        rustix::fs::mkdirat(&self.top, name, Mode::from(0o755))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.top, name, flags, Mode::empty())?)
    }

    fn rmdir(&self, name: &Name) -> Outcome {
        Ok(rustix::fs::unlinkat(
            &self.top,
            name.c_str(),
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Creates a file in one call, where most programs need two: no handle has to be closed.
    fn create(&self, dir: &OwnedFd, name: &Name) -> Outcome {
        let mode = Mode::from(0o644);
        Ok(rustix::fs::mknodat(
            dir,
            name.c_str(),
            FileType::RegularFile,
            mode,
            0,
        )?)
    }

    fn open(&self, dir: &OwnedFd, name: &Name) -> Outcome<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name.c_str(), flags, Mode::empty())?)
    }

    fn open_to_append(&self, dir: &OwnedFd, name: &Name) -> Outcome<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name.c_str(), flags, Mode::empty())?)
    }

    fn find(&self, dir: &OwnedFd, name: &Name) -> Outcome {
        let exists = rustix::fs::Access::EXISTS;
        let flags = AtFlags::empty();
        Ok(rustix::fs::accessat(dir, name.c_str(), exists, flags)?)
    }

    fn stat_name(&self, dir: &OwnedFd, name: &Name) -> Outcome {
        rustix::fs::statat(dir, name.c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn stat(&self, file: &OwnedFd) -> Outcome {
        rustix::fs::fstat(file)?;
        Ok(())
    }

    fn append(&self, file: &OwnedFd, bytes: &[u8]) -> Outcome {
        rustix::io::write(file, bytes)?;
        Ok(())
    }

    fn write(&self, file: &OwnedFd, offset: u64, bytes: &[u8]) -> Outcome {
        rustix::io::pwrite(file, bytes, offset)?;
        Ok(())
    }

    fn read(&self, file: &OwnedFd, offset: u64, buf: &mut [u8]) -> Outcome {
        rustix::io::pread(file, buf, offset)?;
        Ok(())
    }

    fn rename(&self, dir: &OwnedFd, from: &Name, to: &Name) -> Outcome {
        Ok(rustix::fs::renameat(dir, from.c_str(), dir, to.c_str())?)
    }

    fn unlink(&self, dir: &OwnedFd, name: &Name) -> Outcome {
        Ok(rustix::fs::unlinkat(dir, name.c_str(), AtFlags::empty())?)
    }

    fn list(&self, dir: &OwnedFd, each: &mut dyn FnMut(&[u8])) -> Outcome {
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => each(name),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Outcome {
        Ok(rustix::fs::syncfs(&self.top)?)
    }

    fn written_bytes(&self) -> Outcome<u64> {
        let device = self.mount.loops()[0].path();
        let name = device.file_name().unwrap_or_default();
        let stat = Path::new("/sys/block").join(name).join("stat");
        let text = std::fs::read_to_string(stat)?;
        // The seventh field counts written sectors of 512 bytes.
        let sectors = text
            .split_whitespace()
            .nth(6)
            .ok_or("no counter of sectors")?;
        Ok(sectors.parse::<u64>()? * 512)
    }
}
