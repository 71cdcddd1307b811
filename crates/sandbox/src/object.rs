//! Structs that can only be written as JSON objects.

use serde::de::{Deserializer, Visitor};

/// Refuses a list in place of a struct. Serde would accept it, field by field, and nobody means that.
pub(crate) struct OnlyObject<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for OnlyObject<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// For types that derive both traits with `#[serde(remote = "Self")]`, which turns the derived code into functions of
/// the type.
macro_rules! only_object {
    ($($name:ident),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::object::OnlyObject(deserializer))
            }
        }
    )*};
}
pub(crate) use only_object;

#[cfg(test)]
mod tests {
    use crate::{CellSpec, InitSpec, Lifetime, Limits, Rlimit, TerminalSize};

    #[test]
    fn a_list_is_no_struct() {
        let refused = |error: serde_json::Error| assert!(error.to_string().contains("sequence"), "{error}");
        refused(serde_json::from_str::<Limits>("[null, null]").unwrap_err());
        refused(serde_json::from_str::<Lifetime>("[1, 2]").unwrap_err());
        refused(serde_json::from_str::<InitSpec>(r#"["/bin/sh"]"#).unwrap_err());
        refused(serde_json::from_str::<Rlimit>(r#"["cpu", 1, 2]"#).unwrap_err());
        refused(serde_json::from_str::<TerminalSize>("[24, 80]").unwrap_err());
        refused(serde_json::from_str::<CellSpec>(r#"["python", null, "1"]"#).unwrap_err());
        let text = r#"{"resource":"cpu","soft":1,"hard":2}"#;
        let rlimit: Rlimit = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&rlimit).unwrap(), text);
    }
}
