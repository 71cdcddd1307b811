//! Reads a tool's arguments from a JSON value. An error names the place.
//!
//! The place is put together while an error is on its way out, so visitors need no wrapper: with one, as in
//! `serde_path_to_error`, each of some 150 types of arguments is compiled in two more layers.

use std::{fmt, slice};

use serde::{
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Unexpected,
        VariantAccess, Visitor, value::BorrowedStrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value, map, value::Number};

/// Reads a value as one of a type.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    T::deserialize(Located(value))
}

/// A value that is not of the type it was read as.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Where, as in `mounts[0].path`; empty for the whole.
    pub(super) at: String,
    pub(super) text: String,
}

impl Misfit {
    /// The same, seen from the object that has it under this name.
    fn beneath(mut self, name: &str) -> Self {
        let separator = if self.at.is_empty() || self.at.starts_with('[') { "" } else { "." };
        self.at = format!("{name}{separator}{}", self.at);
        self
    }

    /// The same, seen from the list that has it at this index.
    fn within(self, index: usize) -> Self {
        self.beneath(&format!("[{index}]"))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { at: String::new(), text: text.to_string() }
    }
}

#[derive(Clone, Copy)]
struct Located<'de>(&'de Value);

impl<'de> Deserializer<'de> for Located<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => visit_number(number, visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visit_items(items, visitor),
            Value::Object(members) => visit_members(members, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_enum(Variant::of(self.0)?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Misfit> {
    if let Some(number) = number.as_u64() {
        visitor.visit_u64(number)
    } else if let Some(number) = number.as_i64() {
        visitor.visit_i64(number)
    } else {
        visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
    }
}

fn visit_items<'de, V: Visitor<'de>>(items: &'de [Value], visitor: V) -> Result<V::Value, Misfit> {
    let mut left = Items { items: items.iter(), index: 0 };
    let read = visitor.visit_seq(&mut left)?;
    if left.items.len() == 0 {
        Ok(read)
    } else {
        Err(Misfit::invalid_length(items.len(), &"fewer elements in array"))
    }
}

fn visit_members<'de, V: Visitor<'de>>(
    members: &'de Map<String, Value>,
    visitor: V,
) -> Result<V::Value, Misfit> {
    let mut left = Members { members: members.iter(), current: None };
    let read = visitor.visit_map(&mut left)?;
    if left.members.len() == 0 {
        Ok(read)
    } else {
        Err(Misfit::invalid_length(members.len(), &"fewer elements in map"))
    }
}

struct Items<'de> {
    items: slice::Iter<'de, Value>,
    /// The index of the next item.
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(Located(item)).map(Some).map_err(|misfit| misfit.within(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Members<'de> {
    members: map::Iter<'de>,
    current: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Misfit;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        self.current = Some((name, value));
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
            .map_err(|misfit: Misfit| misfit.beneath(name))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Misfit> {
        let (name, value) = self.current.take().ok_or_else(|| Misfit::custom("a value without a name"))?;
        seed.deserialize(Located(value)).map_err(|misfit| misfit.beneath(name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.members.len())
    }
}

/// One of several shapes: its name alone, or an object with its name and what it holds.
struct Variant<'de> {
    name: &'de str,
    held: Option<&'de Value>,
}

impl<'de> Variant<'de> {
    fn of(value: &'de Value) -> Result<Self, Misfit> {
        match value {
            Value::String(name) => Ok(Self { name, held: None }),
            Value::Object(members) => {
                let mut members = members.iter();
                match (members.next(), members.next()) {
                    (Some((name, held)), None) => Ok(Self { name, held: Some(held) }),
                    _ => Err(Misfit::invalid_value(Unexpected::Map, &"map with a single key")),
                }
            }
            _ => Err(Misfit::invalid_type(unexpected(value), &"string or map")),
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Misfit> {
        let chosen = seed.deserialize(BorrowedStrDeserializer::<Misfit>::new(self.name))?;
        Ok((chosen, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        match self.held {
            None | Some(Value::Null) => Ok(()),
            Some(held) => Err(Misfit::invalid_type(unexpected(held), &"unit").beneath(self.name)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misfit> {
        match self.held {
            Some(held) => seed.deserialize(Located(held)),
            None => Err(Misfit::invalid_type(Unexpected::UnitVariant, &"newtype variant")),
        }
        .map_err(|misfit| misfit.beneath(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        match self.held {
            Some(Value::Array(items)) => visit_items(items, visitor),
            Some(held) => Err(Misfit::invalid_type(unexpected(held), &"tuple variant")),
            None => Err(Misfit::invalid_type(Unexpected::UnitVariant, &"tuple variant")),
        }
        .map_err(|misfit| misfit.beneath(self.name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.held {
            Some(Value::Object(members)) => visit_members(members, visitor),
            Some(held) => Err(Misfit::invalid_type(unexpected(held), &"struct variant")),
            None => Err(Misfit::invalid_type(Unexpected::UnitVariant, &"struct variant")),
        }
        .map_err(|misfit| misfit.beneath(self.name))
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Unexpected::Unsigned(number),
            (None, Some(number)) => Unexpected::Signed(number),
            (None, None) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        count: Option<u8>,
        ratio: Option<f64>,
        sort: Option<Sort>,
        #[serde(default)]
        lines: Vec<Line>,
        #[serde(default)]
        named: BTreeMap<String, Line>,
        any: Option<Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Sort {
        Plain,
        Sized(u8),
        Pair(u8, u8),
        Boxed { wide: bool },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Line {
        at: (u8, u8),
    }

    #[test]
    fn what_fits_is_read_as_serde_json_reads_it() {
        for value in [
            json!({}),
            json!({ "count": 3, "ratio": 2, "any": { "deep": [1, null, "x"] } }),
            json!({ "count": null, "ratio": 1.5, "sort": "plain" }),
            json!({ "sort": { "sized": 7 }, "lines": [{ "at": [1, 2] }] }),
            json!({ "sort": { "pair": [1, 2] }, "named": { "a": { "at": [0, 0] } } }),
            json!({ "sort": { "boxed": { "wide": true } } }),
        ] {
            assert_eq!(read::<Order>(&value).unwrap(), Order::deserialize(&value).unwrap(), "{value}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_as_serde_json_tells_it_and_where() {
        for (value, at) in [
            (json!({ "count": 300 }), "count"),
            (json!({ "count": -1 }), "count"),
            (json!({ "count": "3" }), "count"),
            (json!({ "ratio": true }), "ratio"),
            (json!({ "extra": 1 }), "extra"),
            (json!({ "sort": "odd" }), "sort"),
            (json!({ "sort": 5 }), "sort"),
            (json!({ "sort": {} }), "sort"),
            (json!({ "sort": { "sized": 256 } }), "sort.sized"),
            (json!({ "sort": { "boxed": { "wide": 1 } } }), "sort.boxed.wide"),
            (json!({ "sort": { "pair": [1, "x"] } }), "sort.pair[1]"),
            (json!({ "sort": { "pair": 1 } }), "sort.pair"),
            (json!({ "sort": "sized" }), "sort.sized"),
            (json!({ "sort": { "plain": 1 } }), "sort.plain"),
            (json!({ "lines": [{ "at": [1, 2] }, { "at": [1, 2, 3] }] }), "lines[1].at"),
            (json!({ "lines": [{}] }), "lines[0]"),
            (json!({ "lines": 1 }), "lines"),
            (json!({ "named": { "a": { "at": [1, []] } } }), "named.a.at[1]"),
            (json!(7), ""),
        ] {
            let misfit = read::<Order>(&value).unwrap_err();
            let told = Order::deserialize(&value).unwrap_err().to_string();
            assert_eq!((misfit.at.as_str(), misfit.text), (at, told), "{value}");
        }
    }
}
