// NSObject: reference counts, and the graveyard in which released objects stay recognizable.
#import <Foundation/Foundation.h>

#include <objc/message.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "device/settings.h"
#include "device/violation.h"
#include "foundation/autorelease.h"

// The class of an object that was deallocated: it answers no message.
__attribute__((objc_root_class))
@interface SoftmetalZombie {
 @public
  Class isa;
  Class original;
}
@end
@implementation SoftmetalZombie
@end

namespace softmetal {

namespace {

class Population {
 public:
  void add(Class type, long count) {
    const std::lock_guard lock(mutex_);
    alive_[class_getName(type)] += count;
  }
  int64_t alive(const char* name) {
    const std::lock_guard lock(mutex_);
    if (name != nullptr) return alive_[name];
    int64_t sum = 0;
    for (const auto& [_, count] : alive_) sum += count;
    return sum;
  }
  // Keeps the memory of the newest few thousand objects, so that a message to one of them is told
  // from a message to whatever lies there now.
  void bury(id object) {
    const Class type = object_getClass(object);
    add(type, -1);
    object_setClass(object, objc_getClass("SoftmetalZombie"));
    reinterpret_cast<SoftmetalZombie*>(object)->original = type;
    const std::lock_guard lock(mutex_);
    std::free(graves_[next_]);
    graves_[next_] = object;
    next_ = (next_ + 1) % graves_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> alive_;
  std::array<void*, 4096> graves_{};
  size_t next_ = 0;
};

Population& population() {
  static auto* instance = new Population;  // outlives every static that releases an object
  return *instance;
}

id refuse(id receiver, SEL selector, ...) {
  const Class type = object_getClass(receiver);
  if (type == objc_getClass("SoftmetalZombie")) {
    violation("-[%s %s] was sent to an object that had been released for the last time",
              class_getName(reinterpret_cast<SoftmetalZombie*>(receiver)->original),
              sel_getName(selector));
  }
  violation("%c[%s %s]: there is no such method", class_isMetaClass(type) ? '+' : '-',
            class_getName(type), sel_getName(selector));
}

IMP find_refusal(id, SEL) {
  return reinterpret_cast<IMP>(refuse);
}

__attribute__((constructor)) void install_refusal() {
  __objc_msg_forward2 = find_refusal;
}

}  // namespace

}  // namespace softmetal

int64_t softmetal_live_objects(const char* class_name) {
  return softmetal::population().alive(class_name);
}

@implementation NSObject
+ (instancetype)alloc {
  NSObject* object = reinterpret_cast<NSObject*>(class_createInstance(self, 0));
  object->references_ = 1;
  softmetal::population().add(self, 1);
  return object;
}
+ (instancetype)new {
  return [[self alloc] init];
}
+ (Class)class {
  return self;
}
+ (id)retain {
  return self;
}
+ (oneway void)release {
}
- (instancetype)init {
  return self;
}
- (void)dealloc {
  softmetal::population().bury(self);
}
- (instancetype)retain {
  __atomic_add_fetch(&references_, 1, __ATOMIC_RELAXED);
  return self;
}
- (oneway void)release {
  if (__atomic_sub_fetch(&references_, 1, __ATOMIC_ACQ_REL) == 0) [self dealloc];
}
- (instancetype)autorelease {
  softmetal::autorelease(self);
  return self;
}
- (NSUInteger)retainCount {
  return static_cast<NSUInteger>(__atomic_load_n(&references_, __ATOMIC_RELAXED));
}
- (Class)class {
  return object_getClass(self);
}
- (BOOL)isEqual:(id)object {
  return self == object;
}
- (NSUInteger)hash {
  return reinterpret_cast<NSUInteger>(self) >> 4;
}
- (BOOL)isKindOfClass:(Class)aClass {
  for (Class type = object_getClass(self); type != nil; type = class_getSuperclass(type)) {
    if (type == aClass) return YES;
  }
  return NO;
}
- (BOOL)conformsToProtocol:(Protocol*)aProtocol {
  for (Class type = object_getClass(self); type != nil; type = class_getSuperclass(type)) {
    if (class_conformsToProtocol(type, aProtocol)) return YES;
  }
  return NO;
}
- (BOOL)respondsToSelector:(SEL)aSelector {
  return class_respondsToSelector(object_getClass(self), aSelector);
}
- (NSString*)description {
  return [NSString stringWithUTF8String:class_getName(object_getClass(self))];
}
@end
