//! Errors and signals in the words of SSH.

use russh::Sig;
use sandbox::{Error, Next};

/// An error as a client shows it. A terminal needs the carriage returns.
pub(crate) fn message(error: &Error) -> String {
    let hint = match error.next() {
        Some(Next::Advice(advice)) => format!("\r\n{advice}"),
        Some(Next::Resume(sandbox)) => format!("\r\nResume it first: warren resume {sandbox}"),
        Some(Next::Retry) => "\r\nTry again in a moment.".to_owned(),
        _ => String::new(),
    };
    format!("warren: {error}{hint}\r\n")
}

pub(crate) fn signal_number(signal: &Sig) -> Option<i32> {
    Some(match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(name) => match name.as_str() {
            "USR2" => 12,
            "CONT" => 18,
            "STOP" => 19,
            "TSTP" => 20,
            "WINCH" => 28,
            _ => return None,
        },
    })
}

/// The name of a signal; one that has none in SSH is named by its number, as others do.
pub(crate) fn signal_name(number: i32) -> Sig {
    match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        number => Sig::Custom(format!("SIG{number}@warren")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers_and_names() {
        for number in [1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15] {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
        assert_eq!(signal_number(&Sig::Custom("USR2".to_owned())), Some(12));
        assert_eq!(signal_number(&Sig::Custom("RTMIN+1".to_owned())), None);
        assert!(matches!(signal_name(31), Sig::Custom(name) if name == "SIG31@warren"));
    }
}
