//! Between columns and types. Reading is strict: what does not parse makes the row corrupt, with a reason that names
//! the column.

use jiff::Timestamp;
use rusqlite::{Row, types::ValueRef};
use serde::{Serialize, de::DeserializeOwned};

/// Why a row cannot be read; the caller adds whose row it was.
pub(crate) type Reason = String;

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(|source| rusqlite::Error::ToSqlConversionFailure(Box::new(source)))
}

/// The text of an enum that serialises as a plain word.
pub(crate) fn word<T: Serialize>(value: &T) -> Result<String, rusqlite::Error> {
    Ok(json(value)?.trim_matches('"').to_owned())
}

/// Nine digits always, so that text sorts as time.
pub(crate) fn time(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// One row while it is read.
pub(crate) struct Columns<'row>(pub(crate) &'row Row<'row>);

impl Columns<'_> {
    fn maybe_text(&self, column: &str) -> Result<Option<&str>, Reason> {
        match self.0.get_ref(column).map_err(|error| format!("{column}: {error}"))? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(error) => Err(format!("{column}: {error}")),
            },
            other => Err(format!("{column}: text expected, found {}", other.data_type())),
        }
    }

    pub(crate) fn text(&self, column: &str) -> Result<&str, Reason> {
        self.maybe_text(column)?.ok_or_else(|| format!("{column}: it is empty"))
    }

    pub(crate) fn owned(&self, column: &str) -> Result<Option<String>, Reason> {
        Ok(self.maybe_text(column)?.map(str::to_owned))
    }

    /// The id as stored, for messages about a row that may be bad in any column.
    pub(crate) fn raw_id(&self) -> String {
        match self.0.get_ref("id") {
            Ok(ValueRef::Text(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        }
    }

    pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: &str,
    ) -> Result<T, Reason> {
        self.text(column)?.parse().map_err(|error| format!("{column}: {error}"))
    }

    pub(crate) fn maybe_parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, Reason> {
        let Some(text) = self.maybe_text(column)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| format!("{column}: {error}"))
    }

    pub(crate) fn time(&self, column: &str) -> Result<Timestamp, Reason> {
        self.parsed(column)
    }

    pub(crate) fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, Reason> {
        self.maybe_parsed(column)
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, Reason> {
        serde_json::from_str(self.text(column)?).map_err(|error| format!("{column}: {error}"))
    }

    pub(crate) fn maybe_json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, Reason> {
        let Some(text) = self.maybe_text(column)? else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| format!("{column}: {error}"))
    }

    /// Reads what [`word`] wrote.
    pub(crate) fn word<T: DeserializeOwned>(&self, column: &str) -> Result<T, Reason> {
        let text = self.text(column)?;
        serde_json::from_value(serde_json::Value::String(text.to_owned()))
            .map_err(|error| format!("{column}: {error}"))
    }

    /// A whole number that fits what it is read as.
    pub(crate) fn number<T: TryFrom<i64, Error: std::fmt::Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, Reason> {
        let found: Option<i64> = self.0.get(column).map_err(|error| format!("{column}: {error}"))?;
        found.map(T::try_from).transpose().map_err(|error| format!("{column}: {error}"))
    }
}
