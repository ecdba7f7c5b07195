// Owning references, for a part of the code that counts by hand.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace softmetal {

template <class T>
class Ref {
 public:
  Ref() = default;
  static Ref adopt(T object) { return Ref(object); }
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

class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NSAutoreleasePool* pool_;
};

}  // namespace softmetal
