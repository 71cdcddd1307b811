//! Escapes: how addresses, strings of programs and pages write one character as several.

/// The names that HTML has for characters of ASCII. Some encoders use all of them (PHP's `htmlentities` with
/// `ENT_HTML5`); where a character has several names, this has the ones that encoders write.
const ENTITIES: [(&[u8], u8); 35] = [
    (b"amp;", b'&'),
    (b"lt;", b'<'),
    (b"gt;", b'>'),
    (b"quot;", b'"'),
    (b"apos;", b'\''),
    (b"excl;", b'!'),
    (b"num;", b'#'),
    (b"dollar;", b'$'),
    (b"percnt;", b'%'),
    (b"lpar;", b'('),
    (b"rpar;", b')'),
    (b"ast;", b'*'),
    (b"plus;", b'+'),
    (b"comma;", b','),
    (b"period;", b'.'),
    (b"sol;", b'/'),
    (b"colon;", b':'),
    (b"semi;", b';'),
    (b"equals;", b'='),
    (b"quest;", b'?'),
    (b"commat;", b'@'),
    (b"lsqb;", b'['),
    (b"lbrack;", b'['),
    (b"bsol;", b'\\'),
    (b"rsqb;", b']'),
    (b"rbrack;", b']'),
    (b"Hat;", b'^'),
    (b"lowbar;", b'_'),
    (b"grave;", b'`'),
    (b"lcub;", b'{'),
    (b"lbrace;", b'{'),
    (b"rcub;", b'}'),
    (b"rbrace;", b'}'),
    (b"vert;", b'|'),
    (b"verbar;", b'|'),
];
/// Most digits of a character's number in a page: some write zeros first.
const MAX_ENTITY_DIGITS: usize = 6;

/// A sort of escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Escapes {
    /// `%2F`, as in addresses.
    Percent,
    /// `%2F`, and `+` for a blank, as in forms.
    Form,
    /// `\/`, `\u002f` and `\x2f`, as in JSON and scripts.
    Backslash,
    /// `&#47;`, `&#x2f;` and `&sol;`, as in HTML and XML.
    Entity,
}

/// What follows the sign that begins an escape.
enum Read {
    /// An escape for this byte, and the number of bytes after the sign.
    Byte(u8, usize),
    /// It depends on the bytes that come next.
    Open,
    /// The sign stands for itself.
    Nothing,
}

impl Escapes {
    pub(super) const ALL: [Self; 4] = [Self::Percent, Self::Form, Self::Backslash, Self::Entity];

    /// Whether some encoder escapes any of these bytes in this way.
    pub(super) fn concern(self, bytes: &[u8]) -> bool {
        let always_plain: &[u8] = match self {
            Self::Form => return bytes.contains(&b' '),
            Self::Percent => b"-_.",
            // Django, Twig and OWASP's encoder write `-` as `\u002D`, `\x2D`.
            Self::Backslash => b"_.",
            Self::Entity => b"-",
        };
        !bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || always_plain.contains(byte))
    }

    /// The byte with which an escape begins.
    pub(super) fn sign(self) -> u8 {
        match self {
            Self::Percent | Self::Form => b'%',
            Self::Backslash => b'\\',
            Self::Entity => b'&',
        }
    }

    /// Decodes the first byte. Returns it with the number of bytes that it is written with, or none if that depends on
    /// the bytes that come next.
    pub(super) fn read(self, bytes: &[u8]) -> Option<(u8, usize)> {
        let (first, rest) = bytes.split_first()?;
        if self == Self::Form && *first == b'+' {
            return Some((b' ', 1));
        }
        if *first != self.sign() {
            return Some((*first, 1));
        }
        let read = match self {
            Self::Percent | Self::Form => number(rest, 2),
            Self::Backslash => after_backslash(rest),
            Self::Entity => entity(rest),
        };
        match read {
            Read::Byte(byte, width) => Some((byte, width + 1)),
            Read::Nothing => Some((*first, 1)),
            Read::Open => None,
        }
    }
}

/// The byte of a number of exactly `n_digits` hexadecimal digits.
fn number(bytes: &[u8], n_digits: usize) -> Read {
    let digits = &bytes[..bytes.len().min(n_digits)];
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Read::Nothing;
    }
    if digits.len() < n_digits { Read::Open } else { value(digits, 16, n_digits) }
}

/// The byte of a number that is written with `width` bytes; nothing if the number is larger than a byte.
fn value(digits: &[u8], radix: u32, width: usize) -> Read {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, radix).ok());
    let byte = number.and_then(|number| u8::try_from(number).ok());
    byte.map_or(Read::Nothing, |byte| Read::Byte(byte, width))
}

fn after_backslash(bytes: &[u8]) -> Read {
    let longer = |read| match read {
        Read::Byte(byte, width) => Read::Byte(byte, width + 1),
        other => other,
    };
    match bytes.split_first() {
        None => Read::Open,
        Some((b'u', rest)) => longer(number(rest, 4)),
        Some((b'x', rest)) => longer(number(rest, 2)),
        Some((sign, _)) if sign.is_ascii_punctuation() => Read::Byte(*sign, 1),
        Some(_) => Read::Nothing,
    }
}

fn entity(bytes: &[u8]) -> Read {
    match bytes {
        [] | [b'#'] => Read::Open,
        [b'#', b'x' | b'X', digits @ ..] => numbered(digits, 16, 2),
        [b'#', digits @ ..] => numbered(digits, 10, 1),
        name => named(name),
    }
}

/// The byte of digits that end with a semicolon and come after `before` other bytes.
fn numbered(bytes: &[u8], radix: u32, before: usize) -> Read {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let n_digits = bytes.iter().take(MAX_ENTITY_DIGITS).take_while(is_digit).count();
    match bytes.get(n_digits) {
        None => Read::Open,
        Some(b';') => value(&bytes[..n_digits], radix, before + n_digits + 1),
        Some(_) => Read::Nothing,
    }
}

fn named(bytes: &[u8]) -> Read {
    if let Some((name, byte)) = ENTITIES.iter().find(|(name, _)| bytes.starts_with(name)) {
        return Read::Byte(*byte, name.len());
    }
    let may_become_one = ENTITIES.iter().any(|(name, _)| name.starts_with(bytes));
    if may_become_one { Read::Open } else { Read::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_other_bytes_stand_for_themselves() {
        for (escapes, text, meant) in [
            (Escapes::Percent, "%2Fa", Some((b'/', 3))),
            (Escapes::Percent, "%2fa", Some((b'/', 3))),
            (Escapes::Percent, "+", Some((b'+', 1))),
            (Escapes::Form, "+", Some((b' ', 1))),
            (Escapes::Percent, "%2", None),
            (Escapes::Percent, "%x", Some((b'%', 1))),
            (Escapes::Percent, "a%", Some((b'a', 1))),
            (Escapes::Backslash, "\\", None),
            (Escapes::Backslash, "\\/", Some((b'/', 2))),
            (Escapes::Backslash, "\\n", Some((b'\\', 1))),
            (Escapes::Backslash, "\\u002", None),
            (Escapes::Backslash, "\\u002F", Some((b'/', 6))),
            (Escapes::Backslash, "\\u012F", Some((b'\\', 1))),
            (Escapes::Backslash, "\\x2f", Some((b'/', 4))),
            (Escapes::Entity, "&#", None),
            (Escapes::Entity, "&#x2F;", Some((b'/', 6))),
            (Escapes::Entity, "&#047;", Some((b'/', 6))),
            (Escapes::Entity, "&#00000000047;", Some((b'&', 1))),
            (Escapes::Entity, "&#;", Some((b'&', 1))),
            (Escapes::Entity, "&quo", None),
            (Escapes::Entity, "&quot;", Some((b'"', 6))),
            (Escapes::Entity, "&nbsp;", Some((b'&', 1))),
            (Escapes::Entity, "&lowbar;", Some((b'_', 8))),
            (Escapes::Entity, "&lbrac", None),
        ] {
            assert_eq!(escapes.read(text.as_bytes()), meant, "{escapes:?} {text}");
        }
    }
}
