//! Attributes of files: read from requests, written to replies, and set.

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid},
    io::Errno,
};

use super::packet::{Fields, Malformed, Replies};
use crate::files::{QUIET, kind_of};

const SIZE: u32 = 1;
const IDS: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;
/// More pairs of extended attributes than anybody sends; we use none of them.
const MAX_EXTENDED: u32 = 64;

/// The attributes in a request; absent ones stay as they are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) ids: Option<(u32, u32)>,
    pub(super) permissions: Option<u32>,
    /// Access and modification, in seconds.
    pub(super) times: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let flags = fields.u32()?;
        let mut found = Self::default();
        if flags & SIZE != 0 {
            found.size = Some(fields.u64()?);
        }
        if flags & IDS != 0 {
            found.ids = Some((fields.u32()?, fields.u32()?));
        }
        if flags & PERMISSIONS != 0 {
            found.permissions = Some(fields.u32()?);
        }
        if flags & TIMES != 0 {
            found.times = Some((fields.u32()?, fields.u32()?));
        }
        if flags & EXTENDED != 0 {
            let count = fields.u32()?;
            if count > MAX_EXTENDED {
                return Err(Malformed);
            }
            for _ in 0..count {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(found)
    }

    /// The permission bits for a new file or directory.
    pub(super) fn mode_or(&self, usual: u32) -> Mode {
        Mode::from_raw_mode(self.permissions.map_or(usual, |mode| mode & 0o7777))
    }

    fn times(&self) -> Option<Timestamps> {
        let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
        self.times.map(|(access, modification)| Timestamps {
            last_access: at(access),
            last_modification: at(modification),
        })
    }

    /// Sets them on a path. `follow`: on what a symlink at its end leads to.
    pub(super) fn set(&self, path: &[u8], follow: bool) -> Result<(), Errno> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        if let Some(size) = self.size {
            // Opening a FIFO would wait for its other end, so the kind is checked first.
            if kind_of(&rustix::fs::statat(CWD, path, flags)?) != FileType::RegularFile {
                return Err(Errno::INVAL);
            }
            let open = OFlags::WRONLY | QUIET | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
            rustix::fs::ftruncate(rustix::fs::open(path, open, Mode::empty())?, size)?;
        }
        if let Some(times) = self.times() {
            rustix::fs::utimensat(CWD, path, &times, flags)?;
        }
        if let Some(permissions) = self.permissions {
            let mode = Mode::from_raw_mode(permissions & 0o7777);
            match follow {
                true => rustix::fs::chmod(path, mode)?,
                false => chmod_itself(path, mode)?,
            }
        }
        if let Some((uid, gid)) = self.owner()? {
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags)?;
        }
        Ok(())
    }

    /// Sets them on an open file.
    pub(super) fn set_open(&self, file: impl AsFd) -> Result<(), Errno> {
        let file = file.as_fd();
        if let Some(size) = self.size {
            rustix::fs::ftruncate(file, size)?;
        }
        if let Some(times) = self.times() {
            rustix::fs::futimens(file, &times)?;
        }
        if let Some(permissions) = self.permissions {
            rustix::fs::fchmod(file, Mode::from_raw_mode(permissions & 0o7777))?;
        }
        if let Some((uid, gid)) = self.owner()? {
            rustix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    /// All ones is no id: the kernel would leave the owner as it is.
    fn owner(&self) -> Result<Option<(Uid, Gid)>, Errno> {
        match self.ids {
            Some((u32::MAX, _) | (_, u32::MAX)) => Err(Errno::INVAL),
            ids => Ok(ids.map(|(uid, gid)| (Uid::from_raw(uid), Gid::from_raw(gid)))),
        }
    }
}

/// A symlink has no mode of its own.
fn chmod_itself(path: &[u8], mode: Mode) -> Result<(), Errno> {
    match kind_of(&rustix::fs::lstat(path)?) {
        FileType::Symlink => Err(Errno::OPNOTSUPP),
        _ => rustix::fs::chmod(path, mode),
    }
}

/// Writes a file's attributes to a reply.
pub(super) fn write(stat: &Stat, replies: &mut Replies) {
    let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
    replies.u32(SIZE | IDS | PERMISSIONS | TIMES);
    replies.u64(u64::try_from(stat.st_size).unwrap_or(0));
    replies.u32(stat.st_uid);
    replies.u32(stat.st_gid);
    replies.u32(stat.st_mode);
    replies.u32(seconds(stat.st_atime));
    replies.u32(seconds(stat.st_mtime));
}

/// A line like that of `ls -l`, which some clients show as it is. Ids stay numbers.
pub(super) fn long_name(name: &[u8], stat: &Stat) -> Vec<u8> {
    let kind = match kind_of(stat) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let mut line = format!(
        "{kind}{} {:4} {:<8} {:<8} {:>8} {} ",
        permissions(stat.st_mode),
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_size,
        date(stat.st_mtime)
    )
    .into_bytes();
    line.extend_from_slice(name);
    line
}

fn permissions(mode: u32) -> String {
    let bit = |bit: u32, letter: char| if mode & bit == 0 { '-' } else { letter };
    let special = |run: u32, special: u32, set: char| match (mode & run != 0, mode & special != 0) {
        (true, true) => set,
        (false, true) => set.to_ascii_uppercase(),
        (true, false) => 'x',
        (false, false) => '-',
    };
    [
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        special(0o100, 0o4000, 's'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        special(0o010, 0o2000, 's'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        special(0o001, 0o1000, 't'),
    ]
    .into_iter()
    .collect()
}

/// A day in UTC: the guest knows no time zones.
fn date(seconds: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAY: i64 = 24 * 60 * 60;
    // Days to a date, by eras of 400 years that begin on the first of March.
    let days = seconds.div_euclid(DAY) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    let name = usize::try_from(month).ok().and_then(|month| MONTHS.get(month)).copied().unwrap_or("???");
    format!("{name} {day:2}  {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Jan  1  1970"),
            (951_782_400, "Feb 29  2000"),
            (1_709_164_800, "Feb 29  2024"),
            (1_735_689_599, "Dec 31  2024"),
            (-1, "Dec 31  1969"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn modes_look_as_ls_shows_them() {
        for (mode, expected) in [
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2644, "rw-r-Sr--"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ] {
            assert_eq!(permissions(mode), expected, "{mode:o}");
        }
    }

    #[test]
    fn attributes_that_lie_are_malformed() {
        let read = |bytes: &[u8]| Attributes::read(&mut Fields(bytes));
        assert_eq!(read(&[0; 4]), Ok(Attributes::default()));
        let sized = read(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]).unwrap();
        assert_eq!(sized, Attributes { size: Some(9), ..Attributes::default() });
        assert_eq!(read(&[0, 0, 0, 1, 0]), Err(Malformed));
        assert_eq!(read(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Err(Malformed));
    }
}
