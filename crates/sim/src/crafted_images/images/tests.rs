//! Packing is lossless.

use super::*;
use crate::Rng;

#[test]
fn unpacked_device_is_what_was_packed() {
    let scratch = Scratch::new().unwrap();
    let device = scratch.file("device", 3_000_000).unwrap();
    let mut noise = vec![0; 300_000];
    Rng::new(5).fill(&mut noise);
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(&noise, 1_000_001).unwrap();
    file.write_all_at(&noise, 2_500_000).unwrap();
    let packed = scratch.path().join("packed");
    let unpacked = scratch.path().join("unpacked");
    pack(&device, &packed).unwrap();
    unpack(&packed, &unpacked).unwrap();
    assert!(fs::read(&device).unwrap() == fs::read(&unpacked).unwrap());

    let whole = fs::read(&packed).unwrap();
    fs::write(&packed, &whole[..whole.len() - 1]).unwrap();
    let cut = scratch.path().join("cut");
    assert!(matches!(unpack(&packed, &cut), Err(Error::BadImage { .. })));
}

#[test]
fn unknown_image_is_an_error() {
    assert!(matches!(image("no such image"), Err(Error::NoImage { .. })));
}
