//! Any bytes as a send stream, unchanged and with corrected lengths and checksums of commands. A valid stream is
//! written and read again, and the commands are equal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ubtrfs_format::name_hash::crc32c;
use ubtrfs_stream::{Command, CommandLines, StreamReader, StreamVersion, StreamWriter};

fuzz_target!(|input: &[u8]| {
    read(input);
    read(&mended(input));
});

fn read(stream: &[u8]) {
    let Ok(mut reader) = StreamReader::open(stream) else {
        return;
    };
    let mut lines = CommandLines::new(|seconds| seconds);
    while let Ok(Some(command)) = reader.next_command() {
        lines.line_of(&command);
        // The flags of a subvolume have no command in version 2.
        if !matches!(
            command,
            Command::SubvolumeFlags { .. } | Command::Unknown { .. }
        ) {
            assert_kept(&command);
        }
    }
}

/// Interprets the input as a version, then commands: a number, the length of a body, and the body.
fn mended(mut input: &[u8]) -> Vec<u8> {
    let mut stream = b"btrfs-stream\0".to_vec();
    let version = input.split_off_first().copied().unwrap_or(1);
    stream.extend_from_slice(&[version & 3, 0, 0, 0]);
    while let Some((&[number, low, high], rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (body, rest) = rest.split_at(len);
        let len = u32::try_from(len).expect("it was 16 bits");
        let mut command = len.to_le_bytes().to_vec();
        command.extend_from_slice(&[number, 0, 0, 0, 0, 0]);
        command.extend_from_slice(body);
        let crc = crc32c(0, &command);
        command[6..10].copy_from_slice(&crc.to_le_bytes());
        stream.extend_from_slice(&command);
        input = rest;
    }
    stream
}

fn assert_kept(command: &Command<'_>) {
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
    writer.write(command).unwrap();
    let stream = writer.into_inner();
    let mut reader = StreamReader::open(&*stream).unwrap();
    assert_eq!(reader.next_command().unwrap(), Some(*command));
}
