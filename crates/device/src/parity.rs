//! P and Q of RAID5 and RAID6, and the reconstruction of lost members of a row.
//!
//! P is the xor of the data members. Q is the sum of 2^i times member i in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1
//! (0x11d), as in Linux. The formulas are from H. Peter Anvin, "The mathematics of RAID-6".

#[cfg(test)]
pub(crate) mod tests;

const POLYNOMIAL: u16 = 0x11d;

/// `EXP[i]` is 2^i, stored twice so that sums of two logarithms need no modulo.
const EXP: [u8; 510] = tables().0;
const LOG: [u8; 256] = tables().1;

const fn tables() -> ([u8; 510], [u8; 256]) {
    let mut exp = [0u8; 510];
    let mut log = [0u8; 256];
    let mut value: u16 = 1;
    let mut power = 0;
    while power < 255 {
        exp[power] = value as u8;
        exp[power + 255] = value as u8;
        log[value as usize] = power as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        power += 1;
    }
    (exp, log)
}

fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// Returns 1/a; `a` must not be 0.
fn inverse(a: u8) -> u8 {
    EXP[255 - usize::from(LOG[usize::from(a)])]
}

/// Returns 2^power for any power.
fn exp2(power: usize) -> u8 {
    EXP[power % 255]
}

fn xor_into(target: &mut [u8], source: &[u8]) {
    for (t, s) in target.iter_mut().zip(source) {
        *t ^= s;
    }
}

/// Multiplies each byte by `factor`.
fn scale(bytes: &mut [u8], factor: u8) {
    let mut table = [0u8; 256];
    for (value, product) in table.iter_mut().enumerate() {
        *product = mul(value as u8, factor);
    }
    for byte in bytes {
        *byte = table[usize::from(*byte)];
    }
}

/// Multiplies each byte by 2, eight at a time.
fn double(bytes: &mut [u8]) {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        let value = u64::from_ne_bytes(*word);
        let high = value & HIGH;
        // 0xff in each byte whose top bit is set.
        let mask = (high << 1).wrapping_sub(high >> 7);
        let doubled = ((value & !HIGH) << 1) ^ (mask & 0x1d1d_1d1d_1d1d_1d1d);
        *word = doubled.to_ne_bytes();
    }
    for byte in tail {
        *byte = (*byte << 1) ^ if *byte & 0x80 != 0 { 0x1d } else { 0 };
    }
}

/// Computes P of the data members; those in `without` count as zeros.
fn p_of(data: &[Vec<u8>], without: &[usize], len: usize) -> Vec<u8> {
    let mut p = vec![0; len];
    for (index, member) in data.iter().enumerate() {
        if !without.contains(&index) {
            xor_into(&mut p, member);
        }
    }
    p
}

/// Computes Q of the data members; those in `without` count as zeros.
fn q_of(data: &[Vec<u8>], without: &[usize], len: usize) -> Vec<u8> {
    let mut q = vec![0; len];
    for (index, member) in data.iter().enumerate().rev() {
        double(&mut q);
        if !without.contains(&index) {
            xor_into(&mut q, member);
        }
    }
    q
}

/// Computes P, and Q if `parities` is 2, of equally long data members in logical order.
pub fn parity(data: &[Vec<u8>], parities: usize) -> Vec<Vec<u8>> {
    let len = data.first().map_or(0, Vec::len);
    let both = [p_of, q_of];
    let wanted = both.iter().take(parities);
    wanted.map(|of| of(data, &[], len)).collect()
}

/// An error for more lost members than there are parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyLost;

/// Reconstructs the members in `lost` from the others.
///
/// `members` are the data members in logical order, then P, then with two parities Q, all of one length. The contents
/// of the lost ones are ignored.
///
/// # Errors
/// More members are lost than there are parities.
pub fn rebuild(
    members: &mut [Vec<u8>],
    parities: usize,
    lost: &[usize],
) -> Result<(), TooManyLost> {
    if lost.len() > parities {
        return Err(TooManyLost);
    }
    let len = members.first().map_or(0, Vec::len);
    let p_index = members.len() - parities;
    let (data, parity) = members.split_at_mut(p_index);
    let lost_data: Vec<usize> = lost.iter().copied().filter(|&m| m < p_index).collect();
    let p_lost = lost.contains(&p_index);
    match *lost_data {
        [] => {}
        [one] if !p_lost => {
            let mut rebuilt = p_of(data, &lost_data, len);
            xor_into(&mut rebuilt, &parity[0]);
            data[one] = rebuilt;
        }
        [one] => {
            // Q plus Q computed without the member is 2^one * D.
            let mut rebuilt = q_of(data, &lost_data, len);
            xor_into(&mut rebuilt, &parity[1]);
            scale(&mut rebuilt, inverse(exp2(one)));
            data[one] = rebuilt;
        }
        [a, b] => {
            let (x, y) = (a.min(b), a.max(b));
            rebuild_two(data, parity, x, y, len);
        }
        _ => return Err(TooManyLost),
    }
    if p_lost {
        parity[0] = p_of(data, &[], len);
    }
    if parities == 2 && lost.contains(&(p_index + 1)) {
        parity[1] = q_of(data, &[], len);
    }
    Ok(())
}

/// Solves Dx + Dy = P' and 2^x Dx + 2^y Dy = Q'.
fn rebuild_two(data: &mut [Vec<u8>], parity: &[Vec<u8>], x: usize, y: usize, len: usize) {
    let mut p = p_of(data, &[x, y], len);
    xor_into(&mut p, &parity[0]);
    let mut q = q_of(data, &[x, y], len);
    xor_into(&mut q, &parity[1]);
    // Dy = (2^x P' + Q') / (2^x + 2^y). The divisor is not 0, because x < y < 255.
    let mut dx = p.clone();
    scale(&mut p, exp2(x));
    xor_into(&mut q, &p);
    scale(&mut q, inverse(exp2(x) ^ exp2(y)));
    xor_into(&mut dx, &q);
    data[x] = dx;
    data[y] = q;
}
