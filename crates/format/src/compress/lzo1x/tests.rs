//! LZO1X streams: round trips, damage, and comparison with the decoder and encoder of two crates.

use proptest::prelude::*;

use super::*;

fn encode(src: &[u8]) -> Vec<u8> {
    Encoder::new().encode(src).to_vec()
}

/// Generates data with runs, repeats at all distances and noise, to cover every instruction form.
fn lumpy() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600).prop_map(Piece::Noise),
        (any::<u8>(), 0..2000_usize).prop_map(|(byte, len)| Piece::Run { byte, len }),
        (1..65536_usize, 0..900_usize).prop_map(|(back, len)| Piece::Again { back, len }),
    ];
    prop::collection::vec(piece, 0..120).prop_map(|pieces| {
        let mut data = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Noise(bytes) => data.extend(bytes),
                Piece::Run { byte, len } => data.resize(data.len() + len, byte),
                Piece::Again { back, len } => {
                    let from = data.len().saturating_sub(back);
                    for at in from..(from + len).min(data.len()) {
                        data.push(data[at]);
                    }
                }
            }
        }
        data.truncate(MAX_SEGMENT);
        data
    })
}

#[derive(Clone, Debug)]
enum Piece {
    Noise(Vec<u8>),
    Run { byte: u8, len: usize },
    Again { back: usize, len: usize },
}

#[test]
fn liblzo2_stream_decodes() {
    let stream = b"\x22hello, lzo world!\x11\0\0";
    let mut out = [0; 17];
    assert_eq!(decode(stream, &mut out), Ok(17));
    assert_eq!(&out, b"hello, lzo world!");
}

#[test]
fn match_before_the_output_is_refused() {
    let far = [0x12, b'a', 0x20, 0x01, 0xff, 0xff, 0x11, 0, 0];
    let error = LzoError::Lookbehind {
        distance: 0x4000,
        written: 1,
    };
    assert_eq!(decode(&far, &mut [0; 100]), Err(error));
}

#[test]
fn version_one_marker_is_refused() {
    assert!(decode(&[17, 1, 0x12, b'a', 0x11, 0, 0], &mut [0; 100]).is_err());
}

#[test]
fn bytes_behind_the_end_marker_are_refused() {
    let stream = [0x12, b'a', 0x11, 0, 0, 9];
    assert_eq!(
        decode(&stream, &mut [0; 9]),
        Err(LzoError::Trailing { left: 1 })
    );
}

#[test]
fn endless_length_extension_ends() {
    let mut stream = vec![0; 4096];
    assert_eq!(decode(&stream, &mut [0; 64]), Err(LzoError::InputOverrun));
    stream.push(1);
    stream.resize(2 << 20, 7);
    assert_eq!(decode(&stream, &mut [0; 64]), Err(LzoError::OutputOverrun));
}

proptest! {
    #[test]
    fn encoded_data_decodes_to_itself(data in lumpy()) {
        let stream = encode(&data);
        let mut out = vec![0; data.len()];
        prop_assert_eq!(decode(&stream, &mut out), Ok(data.len()));
        prop_assert_eq!(&out, &data);
        prop_assert_eq!(lzo1x_reference(&stream, data.len()), Some(data));
    }

    #[test]
    fn streams_of_another_encoder_decode(data in lumpy()) {
        let mut out = vec![0; data.len()];
        prop_assert_eq!(decode(&lzo1x::compress(&data), &mut out), Ok(data.len()));
        prop_assert_eq!(out, data);
    }

    // LZO1X-1
    #[test]
    fn noise_never_panics_and_agrees_with_another_decoder(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        room in 0..2000_usize,
    ) {
        let mut out = vec![0; room];
        let ours = decode(&stream, &mut out).ok().map(|held| out[..held].to_vec());
        prop_assert_eq!(ours, lzo1x_reference(&stream, room));
    }

    #[test]
    fn damaged_streams_agree_with_another_decoder(
        data in lumpy(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = encode(&data);
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let mut out = vec![0; data.len()];
        let ours = decode(&stream, &mut out).ok().map(|held| out[..held].to_vec());
        prop_assert_eq!(ours, lzo1x_reference(&stream, data.len()));
    }

    #[test]
    fn truncated_streams_are_errors(data in lumpy(), cut in any::<prop::sample::Index>()) {
        let stream = encode(&data);
        let cut = cut.index(stream.len());
        prop_assert!(decode(&stream[..cut], &mut vec![0; data.len()]).is_err());
    }

    #[test]
    fn output_never_passes_its_room(data in lumpy(), short in any::<prop::sample::Index>()) {
        prop_assume!(!data.is_empty());
        let room = short.index(data.len());
        let error = decode(&encode(&data), &mut vec![0; room]);
        prop_assert_eq!(error, Err(LzoError::OutputOverrun));
    }
}

fn lzo1x_reference(stream: &[u8], room: usize) -> Option<Vec<u8>> {
    lzo::decompress(stream, room).ok()
}
