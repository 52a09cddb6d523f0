//! Output of mkfs: the available features, warnings about the host, and the new volume.

use std::io::Write;

use ubtrfs::{BlockDevice, Feature, FeatureSet, FileDevice, Geometry, LeftOutAcls, MadeVolume};

use super::target::Target;
use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::presentation::units::Units;

const SMALLEST_SECTORSIZE: u32 = 4096;

pub(super) fn list_features(default: &FeatureSet, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "Filesystem features available:")?;
    for feature in Feature::all() {
        if let Some(alias) = feature.alias {
            writeln!(out, "{alias:<20}- {} alias", feature.name)?;
        }
        let (name, summary, since) = (feature.name, feature.summary, feature.since);
        let note = if !feature.is_made() {
            ", not supported by this mkfs"
        } else if feature.is_in(default) {
            ", default"
        } else {
            ""
        };
        writeln!(out, "{name:<20}- {summary} (compat={since}{note})")?;
    }
    Ok(())
}

/// Warns about a sector size that differs from the page size. A kernel may not mount a volume with sectors
/// larger than its pages.
pub(super) fn warn_of_sectorsize(geometry: &Geometry, console: &mut Console) {
    let (sectorsize, page) = (geometry.sectorsize, page_bytes());
    if sectorsize as usize != page && sectorsize != SMALLEST_SECTORSIZE {
        console.warning(format_args!(
            "sectorsize {sectorsize} does not match host CPU page size {page}: a kernel may not \
             mount it, use \"--sectorsize {SMALLEST_SECTORSIZE}\" for what all can\n"
        ));
    }
}

/// Warns about ACLs of an archive that are invalid on this machine.
pub(super) fn warn_of_acls(left_out: &LeftOutAcls, console: &mut Console) {
    let LeftOutAcls { path, files } = left_out;
    let path = Escaped::of(path);
    console.warning(format_args!(
        "{files} files lack an ACL, the first is '{path}': malformed, or of users or groups that this machine does \
         not know\n"
    ));
}

/// Warns about images larger than requested, which mkfs.btrfs creates as well.
pub(super) fn warn_of_growth(made: &MadeVolume, asked: Option<u64>, console: &mut Console) {
    let largest = made.device_bytes.iter().copied().max().unwrap_or(0);
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

/// The description of the new volume, in mkfs.btrfs's layout.
#[derive(Clone, Copy)]
pub(super) struct Summary<'a> {
    pub(super) made: &'a MadeVolume,
    pub(super) targets: &'a [Target],
}

impl Summary<'_> {
    pub(super) fn print(self, names_device: bool, out: &mut impl Write) -> anyhow::Result<()> {
        let Summary { made, targets } = self;
        let geometry = &made.geometry;
        let label: &[u8] = match &*geometry.label {
            b"" => b"(null)",
            label => label,
        };
        write!(out, "Label:              ")?;
        out.write_all(label)?;
        writeln!(out, "\nUUID:               {}", made.uuid)?;
        if let (true, [only]) = (names_device, made.device_uuids.as_slice()) {
            writeln!(out, "Device UUID:        {only}")?;
        }
        writeln!(out, "Node size:          {}", geometry.nodesize)?;
        let (sectorsize, page) = (geometry.sectorsize, page_bytes());
        writeln!(
            out,
            "Sector size:        {sectorsize}\t(CPU page size: {page})"
        )?;
        let size = Units::default().size(made.total_bytes);
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
        for (devid, (&bytes, target)) in (1..).zip(made.device_bytes.iter().zip(targets)) {
            let size = Units::default().size(bytes);
            writeln!(out, "{devid:>5}  {size:>10}  {}", target.path.display())?;
        }
        Ok(writeln!(out)?)
    }

    fn print_profiles(self, out: &mut impl Write) -> anyhow::Result<()> {
        let made = self.made;
        let (data, metadata) = (made.geometry.data, made.geometry.metadata);
        writeln!(out, "Block group profiles:")?;
        for (name, bytes, profile) in [
            ("Data:", made.data_bytes, data),
            ("Metadata:", made.metadata_bytes, metadata),
            ("Data+Metadata:", made.mixed_bytes, data),
            ("System:", made.system_bytes, metadata),
        ] {
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
