//! Output of mkfs: the features there are, warnings about the host, and the new volume.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use ubtrfs_device::{BlockDevice, FileDevice};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_mkfs::{FEATURES, FeatureSet, Geometry, Identity, LeftOutAcls, VolumeChunks};

use super::target::Target;
use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::presentation::units::Units;

const SMALLEST_SECTORSIZE: u32 = 4096;

pub(super) fn list_features(out: &mut impl Write) -> anyhow::Result<()> {
    let default = FeatureSet::default();
    writeln!(out, "Filesystem features available:")?;
    for feature in FEATURES {
        if let Some(alias) = feature.alias {
            writeln!(out, "{alias:<20}- {} alias", feature.name)?;
        }
        let (name, summary, since) = (feature.name, feature.summary, feature.since);
        let note = if !feature.is_made() {
            ", not supported by this mkfs"
        } else if feature.is_in(&default) {
            ", default"
        } else {
            ""
        };
        writeln!(out, "{name:<20}- {summary} (compat={since}{note})")?;
    }
    Ok(())
}

/// A kernel may not mount a volume whose sectors are larger than its pages.
pub(super) fn warn_of_sectorsize(geometry: &Geometry, console: &mut Console) {
    let (sectorsize, page) = (geometry.sectorsize, page_bytes());
    if sectorsize as usize != page && sectorsize != SMALLEST_SECTORSIZE {
        console.warning(format_args!(
            "sectorsize {sectorsize} does not match host CPU page size {page}: a kernel may not \
             mount it, use \"--sectorsize {SMALLEST_SECTORSIZE}\" for what all can\n"
        ));
    }
}

/// ACLs of an archive that mean nothing on this machine.
pub(super) fn warn_of_acls(left_out: &LeftOutAcls, console: &mut Console) {
    let LeftOutAcls { path, files } = left_out;
    let path = Escaped(path.as_os_str().as_bytes());
    console.warning(format_args!(
        "{files} files lack an ACL, the first is '{path}': malformed, or of users or groups that this machine does \
         not know\n"
    ));
}

/// Images that are larger than was asked for, as mkfs.btrfs makes them, too.
pub(super) fn warn_of_growth(layout: &VolumeChunks, asked: Option<u64>, console: &mut Console) {
    let sizes = layout.devices.iter().map(|device| device.total_bytes);
    let largest = sizes.max().unwrap_or(0);
    if let Some(asked) = asked.filter(|&asked| asked < largest) {
        console.warning(format_args!(
            "size {asked} is too small for this volume: the image has {largest} bytes\n"
        ));
    }
}

pub(super) fn announce_discard(device: &FileDevice, out: &mut impl Write) -> anyhow::Result<()> {
    let (path, size) = (
        device.path().display(),
        Units::default().size(device.len_bytes()),
    );
    writeln!(out, "Performing full device TRIM {path} ({size}) ...")?;
    Ok(out.flush()?)
}

/// The new volume, in mkfs.btrfs's layout.
#[derive(Clone, Copy)]
pub(super) struct Summary<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) layout: &'a VolumeChunks,
    pub(super) identity: &'a Identity,
    pub(super) targets: &'a [Target],
}

impl Summary<'_> {
    pub(super) fn print(self, names_device: bool, out: &mut impl Write) -> anyhow::Result<()> {
        let Summary {
            geometry,
            layout,
            identity,
            targets,
        } = self;
        let label = geometry.label.split(|&byte| byte == 0).next();
        let label = label.filter(|label| !label.is_empty()).unwrap_or(b"(null)");
        write!(out, "Label:              ")?;
        out.write_all(label)?;
        writeln!(out, "\nUUID:               {}", identity.fsid)?;
        if let (true, [only]) = (names_device, identity.device_uuids.as_slice()) {
            writeln!(out, "Device UUID:        {only}")?;
        }
        writeln!(out, "Node size:          {}", geometry.nodesize)?;
        let (sectorsize, page) = (geometry.sectorsize, page_bytes());
        writeln!(
            out,
            "Sector size:        {sectorsize}\t(CPU page size: {page})"
        )?;
        let size = Units::default().size(layout.total_bytes);
        writeln!(out, "Filesystem size:    {size}")?;
        self.print_profiles(out)?;
        let is_ssd = targets.first().is_some_and(Target::is_ssd);
        let ssd = if is_ssd { "yes" } else { "no" };
        writeln!(out, "SSD detected:       {ssd}")?;
        writeln!(out, "Zoned device:       no")?;
        let features = geometry.features.names().join(", ");
        writeln!(out, "Features:           {features}")?;
        writeln!(out, "Checksum:           {}", geometry.csum_type.name())?;
        writeln!(out, "Number of devices:  {}", targets.len())?;
        writeln!(out, "Devices:")?;
        writeln!(out, "   ID        SIZE  PATH")?;
        for (device, target) in layout.devices.iter().zip(targets) {
            let (devid, size) = (device.devid.0, Units::default().size(device.total_bytes));
            writeln!(out, "{devid:>5}  {size:>10}  {}", target.path.display())?;
        }
        Ok(writeln!(out)?)
    }

    fn print_profiles(self, out: &mut impl Write) -> anyhow::Result<()> {
        let geometry = self.geometry;
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        writeln!(out, "Block group profiles:")?;
        for (name, types, profile) in [
            ("Data:", BlockGroupFlags::DATA, geometry.data),
            ("Metadata:", BlockGroupFlags::METADATA, geometry.metadata),
            ("Data+Metadata:", mixed, geometry.data),
            ("System:", BlockGroupFlags::SYSTEM, geometry.metadata),
        ] {
            let bytes = self.layout.bytes_of_type(types);
            if bytes > 0 {
                let (profile, size) = (profile.name(), Units::default().size(bytes));
                writeln!(out, "  {name:<18}{profile:<8} {size:>16}")?;
            }
        }
        Ok(())
    }
}

fn page_bytes() -> usize {
    rustix::param::page_size()
}
