// Objective-C objects from C++ without ARC: owning references, autorelease pools, texts.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <string>
#include <utility>

#if __has_feature(objc_arc)
#error "references are counted by hand here: compile with -fno-objc-arc"
#endif

namespace mference::metal {

// Owns one reference to an object, which may be nil.
template <class T>
class Ref {
 public:
  Ref() = default;
  // Takes over the reference that new..., alloc and copy return.
  static Ref adopt(T object) { return Ref(object); }
  // Takes a reference of its own to an object that somebody else owns.
  static Ref share(T object) { return Ref([object retain]); }
  Ref(const Ref& other) : object_([other.object_ retain]) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { [object_ release]; }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  explicit Ref(T object) : object_(object) {}
  T object_ = nil;
};

// Objects that methods return unowned live until the innermost pool of the thread is drained. Every
// entry point of this directory that calls such a method has a pool: its thread may have none.
class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NSAutoreleasePool* pool_;
};

inline NSString* to_objc(const std::string& text) {
  return [NSString stringWithUTF8String:text.c_str()];
}

inline std::string to_string(NSString* text) {
  const char* bytes = text == nil ? nullptr : [text UTF8String];
  return bytes == nullptr ? std::string() : std::string(bytes);
}

inline std::string reason(NSError* error) {
  const std::string text = error == nil ? std::string() : to_string([error localizedDescription]);
  return text.empty() ? "no reason given" : text;
}

}  // namespace mference::metal
