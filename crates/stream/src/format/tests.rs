//! Round trips, and streams with all kinds of defects.

use std::io::Read;

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::FileTime;
use ubtrfs_format::uuid::Uuid;

use super::*;

const HEADER_V1: &[u8] = b"btrfs-stream\0\x01\0\0\0";
const HEADER_V2: &[u8] = b"btrfs-stream\0\x02\0\0\0";
/// The start of a stream from Linux 6.18.
const KERNEL_STREAM: &[u8] = b"btrfs-stream\0\
    \x01\x00\x00\x00\x26\x00\x00\x00\x01\x00\xa1\x28\x83\xc8\x0f\x00\x02\x00\x73\x31\x01\x00\x10\x00\
    \xa5\x33\x4a\xc1\x6c\x65\x98\x44\xaf\x43\x6b\x4c\x9d\x9e\x29\x40\x02\x00\x08\x00\x0a\x00\x00\x00\
    \x00\x00\x00\x00";
const TIME: FileTime = FileTime {
    sec: -2,
    nsec: 999_999_999,
};

/// A type of fields that has examples.
pub(super) trait Sample {
    fn sample(number: usize) -> Self;
}

const SAMPLES: usize = 4;

impl Sample for &[u8] {
    fn sample(number: usize) -> Self {
        [&b"a/b \xff\n"[..], b"", b"p", b"user.a"][number]
    }
}

impl Sample for u64 {
    fn sample(number: usize) -> u64 {
        [0, 0x3103e8, 0o60644, u64::MAX][number]
    }
}

impl Sample for u32 {
    fn sample(number: usize) -> u32 {
        u64::sample(number) as u32
    }
}

impl Sample for InodeNr {
    fn sample(number: usize) -> InodeNr {
        InodeNr(u64::sample(number))
    }
}

impl Sample for Transid {
    fn sample(number: usize) -> Transid {
        Transid(u64::sample(number))
    }
}

impl Sample for Uuid {
    fn sample(number: usize) -> Uuid {
        Uuid([number as u8; 16])
    }
}

impl Sample for FileTime {
    fn sample(number: usize) -> FileTime {
        [TIME, FileTime::default(), TIME, TIME][number]
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(number: usize) -> Option<T> {
        (number > 1).then(|| T::sample(number))
    }
}

/// Returns commands of each kind that the version has.
fn commands(version: StreamVersion) -> Vec<Command<'static>> {
    let mut commands: Vec<Command<'_>> = (0..SAMPLES).flat_map(Command::samples).collect();
    if version < StreamVersion::V2 {
        commands.retain(|command| !command.kind().unwrap().needs_version_2());
        for command in &mut commands {
            if let Command::Utimes { otime, .. } = command {
                *otime = None;
            }
        }
    }
    // Only names and paths have no NUL.
    commands.push(Command::Write {
        path: b"p",
        offset: 0,
        data: b"data\0",
    });
    commands.push(Command::SetXattr {
        path: b"p",
        name: b"user.a",
        value: b"\0v",
    });
    commands.push(Command::End);
    commands
}

fn written(version: StreamVersion, commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), version).unwrap();
    for command in commands {
        writer.write(command).unwrap();
    }
    writer.into_inner()
}

/// Reads all commands and returns their number.
fn read_all(stream: &[u8]) -> Result<usize, StreamError> {
    let mut reader = StreamReader::open(stream)?;
    let mut count = 0;
    while reader.next_command()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Builds a command with a given body and a correct checksum.
fn sealed(number: u16, body: &[u8]) -> Vec<u8> {
    let mut command = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    command.extend_from_slice(&number.to_le_bytes());
    command.extend_from_slice(&[0; 4]);
    command.extend_from_slice(body);
    let crc = command_crc(&command);
    command[CRC_AT..COMMAND_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    command
}

fn tlv(number: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    [&number.to_le_bytes(), &len.to_le_bytes(), value].concat()
}

/// Returns the fault of a stream with this command after a valid one.
fn fault_of(header: &[u8], command: &[u8]) -> StreamError {
    let first = sealed(11, &tlv(15, b"a"));
    let stream = [header, &first, command].concat();
    let error = read_all(&stream).unwrap_err();
    assert_eq!(error.offset as usize, header.len() + first.len());
    error
}

#[test]
fn commands_come_back_as_they_were_written() {
    for version in [StreamVersion::V1, StreamVersion::V2] {
        let commands = commands(version);
        let stream = written(version, &commands);
        let mut reader = StreamReader::open(&*stream).unwrap();
        assert_eq!(reader.version(), version);
        for command in &commands {
            assert_eq!(reader.next_command().unwrap(), Some(*command));
        }
        assert_eq!(reader.next_command().unwrap(), None);
        assert_eq!(reader.offset() as usize, stream.len());
    }
}

#[test]
fn a_stream_of_the_kernel_is_read_and_written_alike() {
    let kernel = KERNEL_STREAM;
    let mut reader = StreamReader::open(kernel).unwrap();
    let command = reader.next_command().unwrap().unwrap();
    let Command::Subvol { path, ctransid, .. } = command else {
        panic!("{command:?}");
    };
    assert_eq!((path, ctransid), (&b"s1"[..], Transid(10)));
    assert_eq!(written(StreamVersion::V1, &[command]), kernel);
}

#[test]
fn bytes_behind_the_end_are_left_alone() {
    let mut stream = written(StreamVersion::V1, &[Command::End]);
    stream.extend_from_slice(b"next");
    let mut reader = StreamReader::open(&*stream).unwrap();
    assert_eq!(reader.next_command().unwrap(), Some(Command::End));
    assert_eq!(reader.next_command().unwrap(), None);
    assert_eq!(reader.into_inner(), b"next");
}

#[test]
fn a_stream_cut_anywhere_is_an_error() {
    for version in [StreamVersion::V1, StreamVersion::V2] {
        let commands = commands(version);
        let stream = written(version, &commands);
        assert_eq!(read_all(&stream).unwrap(), commands.len());
        for len in 0..stream.len() {
            let error = read_all(&stream[..len]).unwrap_err();
            let is_cut = matches!(
                error.fault,
                Fault::Empty | Fault::ShortRead { .. } | Fault::UnexpectedEnd
            );
            assert!(is_cut, "cut at {len}: {error}");
            assert!(error.offset as usize <= len, "cut at {len}: {error}");
        }
    }
}

/// STREAM-1: the checksum covers all of a command.
#[test]
fn a_flipped_bit_is_an_error() {
    for version in [StreamVersion::V1, StreamVersion::V2] {
        let commands = commands(version);
        let mut stream = written(version, &commands);
        let version_at = MAGIC.len()..STREAM_HEADER_BYTES;
        for at in (0..stream.len()).filter(|at| !version_at.contains(at)) {
            for bit in 0..8 {
                stream[at] ^= 1 << bit;
                assert!(read_all(&stream).is_err(), "bit {bit} of byte {at}");
                stream[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn errors_name_the_command_and_its_offset() {
    let mut command = sealed(15, &tlv(15, b"a"));
    command[12] ^= 1;
    let error = fault_of(HEADER_V1, &command);
    assert!(matches!(error.fault, Fault::Crc { .. }));
    let text = error.to_string();
    assert!(text.starts_with("crc32 mismatch in command"), "{text}");
    assert!(
        text.ends_with("(command write at byte 32 of the stream)"),
        "{text}"
    );
    assert_eq!(
        read_all(b"btrfs-tree").unwrap_err().to_string(),
        "short read from stream: expected 17 read 10 (at byte 0 of the stream)"
    );
}

/// STREAM-2
#[test]
fn a_body_above_the_bound_is_refused_before_it_is_read() {
    /// Fails the test if a read goes beyond the headers.
    struct Ends<'a>(&'a [u8]);
    impl Read for Ends<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(!self.0.is_empty(), "the body is read");
            self.0.read(buffer)
        }
    }
    for len in [MAX_BODY_BYTES as u32 + 1, u32::MAX] {
        let header = [&len.to_le_bytes()[..], &[15, 0, 0, 0, 0, 0]].concat();
        let stream = [HEADER_V2, &header].concat();
        let mut reader = StreamReader::open(Ends(&stream)).unwrap();
        let error = reader.next_command().unwrap_err();
        let Fault::TooLarge { len_bytes, .. } = error.fault else {
            panic!("{error}");
        };
        assert_eq!(len_bytes, len);
    }
}

#[test]
fn a_wrong_length_takes_no_more_memory_than_the_stream_has() {
    let len = (MAX_BODY_BYTES as u32).to_le_bytes();
    let stream = [HEADER_V2, &len, &[15, 0, 0, 0, 0, 0, 1, 2, 3]].concat();
    let mut reader = StreamReader::open(&*stream).unwrap();
    let error = reader.next_command().unwrap_err();
    assert!(matches!(error.fault, Fault::ShortRead { read: 3, .. }));
    assert!(reader.command.capacity() < 4096);
}

#[test]
fn wrong_headers_are_refused() {
    let fault = |stream: &[u8]| read_all(stream).unwrap_err().fault;
    assert!(matches!(fault(b""), Fault::Empty));
    assert!(matches!(fault(&[b'x'; 17]), Fault::Magic));
    let with_version = |version: u8| [MAGIC, &[version, 0, 0, 0][..]].concat();
    assert!(matches!(fault(&with_version(3)), Fault::Version(3)));
    assert!(matches!(fault(&with_version(0)), Fault::UnexpectedEnd));
    let stream = with_version(0);
    let reader = StreamReader::open(&*stream).unwrap();
    assert_eq!(reader.version(), StreamVersion::V1);
}

/// The kernel sends symlink targets made by `mkfs.btrfs --rootdir` with the stored NUL.
#[test]
fn text_ends_at_its_first_nul() {
    let attributes = [
        tlv(15, b"link\0x"),
        tlv(3, &257u64.to_le_bytes()),
        tlv(17, b"target\0"),
    ];
    let stream = [HEADER_V1, &sealed(8, &attributes.concat())].concat();
    let mut reader = StreamReader::open(&*stream).unwrap();
    let command = reader.next_command().unwrap().unwrap();
    let wanted = Command::Symlink {
        path: b"link",
        ino: InodeNr(257),
        target: b"target",
    };
    assert_eq!(command, wanted);
}

/// STREAM-3
#[test]
fn wrong_attributes_are_refused() {
    let path = tlv(15, b"a");
    let ino = tlv(3, &[0; 8]);
    let fault = |parts: &[&[u8]]| fault_of(HEADER_V1, &sealed(3, &parts.concat())).fault;
    assert!(matches!(
        fault(&[&path]),
        Fault::MissingAttribute(Attribute::Ino)
    ));
    assert!(matches!(
        fault(&[&path, &ino, b"\x63\0\0\0"]),
        Fault::UnknownAttribute(99)
    ));
    assert!(matches!(
        fault(&[&path, &ino, &[0; 4]]),
        Fault::UnknownAttribute(0)
    ));
    assert!(matches!(fault(&[&path, b"\x03"]), Fault::CutAttribute));
    assert!(matches!(
        fault(&[&path, b"\x03\0\x08"]),
        Fault::CutAttribute
    ));
    assert!(matches!(
        fault(&[&path, b"\x03\0\x08\0abc"]),
        Fault::CutAttribute
    ));
    assert!(matches!(
        fault(&[&path, &tlv(3, &[0; 4])]),
        Fault::AttributeSize {
            expected: 8,
            found: 4,
            ..
        }
    ));
    // In version 1, data has a length like other attributes.
    let write = [path, tlv(18, &[0; 8]), b"\x13\0".to_vec()].concat();
    let error = fault_of(HEADER_V1, &sealed(15, &write));
    assert!(matches!(error.fault, Fault::CutAttribute));
}

#[test]
fn the_last_of_equal_attributes_counts() {
    let body = [tlv(15, b"a"), tlv(15, b"b")].concat();
    let stream = [HEADER_V1, &sealed(11, &body)].concat();
    let mut reader = StreamReader::open(&*stream).unwrap();
    let command = reader.next_command().unwrap();
    assert_eq!(command, Some(Command::Unlink { path: b"b" }));
}

#[test]
fn version_3_is_refused_by_name() {
    let error = fault_of(HEADER_V2, &sealed(26, &tlv(15, b"a")));
    assert!(matches!(
        error.fault,
        Fault::NewerCommand(CommandKind::EnableVerity)
    ));
    let text = error.to_string();
    assert!(
        text.starts_with("enable_verity needs stream version 3"),
        "{text}"
    );
    let error = fault_of(HEADER_V2, &sealed(11, &tlv(32, &[1])));
    assert!(matches!(
        error.fault,
        Fault::NewerAttribute(Attribute::VerityAlgorithm)
    ));
}

#[test]
fn commands_of_unknown_number_are_shown_as_such() {
    for number in [0, 27, u16::MAX] {
        let stream = [HEADER_V1, &sealed(number, b"any")].concat();
        let mut reader = StreamReader::open(&*stream).unwrap();
        let command = reader.next_command().unwrap();
        assert_eq!(command, Some(Command::Unknown { number }));
    }
}

#[test]
fn names_and_numbers_agree() {
    for number in 1..=26 {
        assert_eq!(CommandKind::from_raw(number).unwrap().raw(), number);
    }
    for number in 1..=35 {
        assert_eq!(Attribute::from_raw(number).unwrap().raw(), number);
    }
    for number in [0, 36] {
        assert_eq!(Attribute::from_raw(number), None);
    }
}

#[test]
fn commands_that_do_not_fit_are_not_written() {
    let large = vec![0; MAX_BODY_BYTES];
    let write = |len: usize| Command::Write {
        path: b"",
        offset: 0,
        data: &large[..len],
    };
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap();
    let mut refused = |command: Command<'_>| writer.write(&command).unwrap_err();
    let error = refused(write(65536));
    assert!(matches!(error, WriteError::TooLong { .. }), "{error}");
    let error = refused(write(65535));
    assert!(matches!(error, WriteError::TooLarge { .. }), "{error}");
    let error = refused(Command::Fileattr {
        path: b"",
        flags: 0,
    });
    assert!(matches!(error, WriteError::NeedsVersion2(_)), "{error}");
    let error = refused(Command::Unlink { path: b"a\0" });
    assert!(matches!(error, WriteError::Nul { .. }), "{error}");
    let error = refused(Command::Unknown { number: 99 });
    assert!(matches!(error, WriteError::Unknown(99)), "{error}");
    let stream = writer.into_inner();
    assert_eq!(stream, HEADER_V1);

    // The command header, the empty path, the offset, and the data's number and length.
    let fits = 65536 - 10 - 4 - 12 - 4;
    let stream = written(StreamVersion::V1, &[write(fits), Command::End]);
    assert_eq!(read_all(&stream).unwrap(), 2);

    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
    let error = writer.write(&write(MAX_BODY_BYTES - 17)).unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { .. }), "{error}");
    writer.write(&write(MAX_BODY_BYTES - 18)).unwrap();
    writer.write(&Command::End).unwrap();
    assert_eq!(read_all(&writer.into_inner()).unwrap(), 2);
}

/// In version 1, DSM has two commands whose numbers mean others in version 2.
#[test]
fn commands_of_synology_are_read_in_version_1() {
    let flags = sealed(23, &tlv(25, &1u32.to_le_bytes()));
    let offset = tlv(18, &8192u64.to_le_bytes());
    let len = tlv(4, &4096u64.to_le_bytes());
    let mode = tlv(26, &3u32.to_le_bytes());
    let punched = [tlv(15, b"file"), offset, len, mode].concat();
    let punched = sealed(24, &punched);
    let end = sealed(21, b"");
    let header = |version: u32| [&MAGIC[..], &version.to_le_bytes()].concat();
    let stream = [header(1), flags.clone(), punched.clone(), end].concat();
    let mut reader = StreamReader::open(&*stream).unwrap();
    assert_eq!(
        reader.next_command().unwrap(),
        Some(Command::SubvolumeFlags { flags: 1 })
    );
    let wanted = Command::Fallocate {
        path: b"file",
        mode: 3,
        offset: 8192,
        len: 4096,
    };
    assert_eq!(reader.next_command().unwrap(), Some(wanted));
    assert_eq!(reader.next_command().unwrap(), Some(Command::End));
    let refused = fault_of(&header(2), &flags);
    assert!(refused.to_string().contains("attribute path"), "{refused}");
    assert!(
        fault_of(&header(2), &punched)
            .to_string()
            .contains("fileattr")
    );
}
