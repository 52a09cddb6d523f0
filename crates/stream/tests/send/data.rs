//! Data of files that exist in both snapshots, and extents with many users.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use ubtrfs_stream::Command;

use crate::edits::clone_range;
use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, V2_COMPRESSED, count};

const SECTOR: u64 = 4096;

#[test]
fn extents_are_sent_whole_where_the_old_file_had_many() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new(",compress=zstd");
    let path = source.live().join("file");
    let file = File::create(&path).unwrap();
    for number in 0..32 {
        file.write_all_at(&[number as u8; 4096], number * SECTOR)
            .unwrap();
        file.sync_all().unwrap();
    }
    source.snapshot("old");
    file.write_all_at(&[b'n'; 32 * 4096], 0).unwrap();
    drop(file);
    source.snapshot("new");
    let sending = source.open();
    let target = Target::new("");
    let full = sending.send("old", None, &[], V2_COMPRESSED);
    target.receive(&sending, "old", &full);
    let stream = sending.send("new", Some("old"), &[], V2_COMPRESSED);
    let encoded = count(&stream, |c| matches!(c, Command::EncodedWrite { .. }));
    let plain = count(&stream, |c| matches!(c, Command::Write { .. }));
    assert_eq!((encoded, plain), (1, 0));
    target.receive(&sending, "new", &stream);
}

#[test]
fn an_extent_may_be_used_in_any_number_of_places() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    for (name, places) in [("some", 500), ("many", 1500)] {
        let extent = live.join(format!("extent of {name}"));
        fs::write(&extent, [7; 8192]).unwrap();
        let extent = File::open(extent).unwrap();
        extent.sync_all().unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(live.join(name))
            .unwrap();
        for place in 0..places {
            assert!(clone_range(&extent, &file, 0, SECTOR, place * 2 * SECTOR));
        }
        source.snapshot(name);
    }
    let sending = source.open();
    let target = Target::new("");
    let stream = sending.send("some", None, &[], V1);
    let clones = count(&stream, |c| matches!(c, Command::Clone { .. }));
    assert!(clones > 400, "{clones}");
    target.receive(&sending, "some", &stream);
    let stream = sending.send("many", Some("some"), &[], V1);
    target.receive(&sending, "many", &stream);
}

/// The kernel sends it in the same way, and stores it inline again.
#[test]
fn compressed_data_in_items_is_sent_as_it_is() {
    if !available_or_skip() {
        return;
    }
    for kind in ["zlib", "lzo", "zstd"] {
        let mut source = Source::new(&format!(",compress-force={kind}"));
        let live = source.live();
        let text = |len: usize| b"a line of text\n".repeat(300)[..len].to_vec();
        for (name, len) in [("grows", 1000), ("shrinks", 3000), ("stays", 2000)] {
            fs::write(live.join(name), text(len)).unwrap();
        }
        source.snapshot("old");
        fs::write(live.join("shrinks"), text(500)).unwrap();
        let grows = OpenOptions::new().append(true).open(live.join("grows"));
        std::io::Write::write_all(&mut grows.unwrap(), &text(1500)).unwrap();
        fs::write(live.join("new"), text(100)).unwrap();
        source.snapshot("new");
        let sending = source.open();
        let target = Target::new("");
        for (name, parent) in [("old", None), ("new", Some("old"))] {
            let stream = sending.send(name, parent, &[], V2_COMPRESSED);
            let encoded = count(&stream, |c| matches!(c, Command::EncodedWrite { .. }));
            let plain = count(&stream, |c| matches!(c, Command::Write { .. }));
            assert_eq!((encoded, plain), (3, 0), "{kind} {name}");
            target.receive(&sending, name, &stream);
        }
    }
}
