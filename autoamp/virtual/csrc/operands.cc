#include "operands.h"

namespace vgpu {

uint64_t Operands::Word(size_t index) const {
  size_t word = 0;
  for (size_t i = 0; i < index; ++i) word += !IsFloatAttribute(slot.attributes[i]);
  return attribute_words[word];
}

bool Operands::Bool(size_t index) const {
  // Callees must ignore the bits above a bool's byte, so callers may leave rubbish there.
  return context ? context->AttrAt<bool>(index) : (Word(index) & 0xff) != 0;
}

int Operands::Int(size_t index) const {
  return context ? context->AttrAt<int>(index) : static_cast<int>(Word(index));
}

const std::string& Operands::String(size_t index) const {
  return context ? context->AttrAt<std::string>(index)
                 : *reinterpret_cast<const std::string*>(Word(index));
}

int Operands::Find(phi::AttributeType type) const {
  for (size_t i = 0; i < slot.attributes.size(); ++i)
    if (slot.attributes[i] == type) return static_cast<int>(i);
  return -1;
}

}  // namespace vgpu
