//! A terminal's modes, as SSH numbers them (RFC 4254, section 8; RFC 8160 for UTF-8). Speeds and what else belongs to a
//! serial line mean nothing here and are left out, like numbers that nobody knows.

use std::{io, os::fd::AsFd};

use guest_protocol::TerminalMode;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// The values for a key that has no meaning: from a client, and in the kernel.
const NO_KEY: u32 = 255;
const DISABLED: u8 = 0;

/// Sets what is stated, before anybody uses the terminal; everything else stays as the kernel has it.
pub(super) fn set_modes(terminal: impl AsFd, modes: &[TerminalMode]) -> io::Result<()> {
    if modes.is_empty() {
        return Ok(());
    }
    let mut settings = tcgetattr(&terminal)?;
    for mode in modes {
        set(&mut settings, *mode);
    }
    Ok(tcsetattr(&terminal, OptionalActions::Now, &settings)?)
}

fn set(settings: &mut Termios, TerminalMode { opcode, value }: TerminalMode) {
    let is_on = value != 0;
    if let Some(key) = key(opcode) {
        let byte = if value == NO_KEY { Ok(DISABLED) } else { u8::try_from(value) };
        if let Ok(byte) = byte {
            settings.special_codes[key] = byte;
        }
    } else if let Some(mode) = input_mode(opcode) {
        settings.input_modes.set(mode, is_on);
    } else if let Some(mode) = local_mode(opcode) {
        settings.local_modes.set(mode, is_on);
    } else if let Some(mode) = output_mode(opcode) {
        settings.output_modes.set(mode, is_on);
    }
}

fn key(opcode: u8) -> Option<SpecialCodeIndex> {
    Some(match opcode {
        1 => SpecialCodeIndex::VINTR,
        2 => SpecialCodeIndex::VQUIT,
        3 => SpecialCodeIndex::VERASE,
        4 => SpecialCodeIndex::VKILL,
        5 => SpecialCodeIndex::VEOF,
        6 => SpecialCodeIndex::VEOL,
        7 => SpecialCodeIndex::VEOL2,
        8 => SpecialCodeIndex::VSTART,
        9 => SpecialCodeIndex::VSTOP,
        10 => SpecialCodeIndex::VSUSP,
        12 => SpecialCodeIndex::VREPRINT,
        13 => SpecialCodeIndex::VWERASE,
        14 => SpecialCodeIndex::VLNEXT,
        18 => SpecialCodeIndex::VDISCARD,
        _ => return None,
    })
}

fn input_mode(opcode: u8) -> Option<InputModes> {
    Some(match opcode {
        30 => InputModes::IGNPAR,
        31 => InputModes::PARMRK,
        32 => InputModes::INPCK,
        33 => InputModes::ISTRIP,
        34 => InputModes::INLCR,
        35 => InputModes::IGNCR,
        36 => InputModes::ICRNL,
        37 => InputModes::IUCLC,
        38 => InputModes::IXON,
        39 => InputModes::IXANY,
        40 => InputModes::IXOFF,
        41 => InputModes::IMAXBEL,
        42 => InputModes::IUTF8,
        _ => return None,
    })
}

fn local_mode(opcode: u8) -> Option<LocalModes> {
    Some(match opcode {
        50 => LocalModes::ISIG,
        51 => LocalModes::ICANON,
        52 => LocalModes::XCASE,
        53 => LocalModes::ECHO,
        54 => LocalModes::ECHOE,
        55 => LocalModes::ECHOK,
        56 => LocalModes::ECHONL,
        57 => LocalModes::NOFLSH,
        58 => LocalModes::TOSTOP,
        59 => LocalModes::IEXTEN,
        60 => LocalModes::ECHOCTL,
        61 => LocalModes::ECHOKE,
        62 => LocalModes::PENDIN,
        _ => return None,
    })
}

fn output_mode(opcode: u8) -> Option<OutputModes> {
    Some(match opcode {
        70 => OutputModes::OPOST,
        71 => OutputModes::OLCUC,
        72 => OutputModes::ONLCR,
        73 => OutputModes::OCRNL,
        74 => OutputModes::ONOCR,
        75 => OutputModes::ONLRET,
        _ => return None,
    })
}
