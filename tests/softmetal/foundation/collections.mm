#import <Foundation/Foundation.h>

#include <utility>
#include <vector>

#include "device/violation.h"

namespace {
using Items = std::vector<id>;
using Entries = std::vector<std::pair<id, id>>;
}  // namespace

@implementation NSNumber
+ (instancetype)numberWithInteger:(NSInteger)value {
  NSNumber* number = [[self alloc] init];
  number->integer_ = value;
  number->real_ = static_cast<double>(value);
  return [number autorelease];
}
+ (instancetype)numberWithDouble:(double)value {
  NSNumber* number = [[self alloc] init];
  number->integer_ = static_cast<long long>(value);
  number->real_ = value;
  return [number autorelease];
}
+ (instancetype)numberWithBool:(BOOL)value {
  return [self numberWithInteger:value];
}
+ (instancetype)numberWithInt:(int)value {
  return [self numberWithInteger:value];
}
+ (instancetype)numberWithUnsignedInt:(unsigned int)value {
  return [self numberWithInteger:value];
}
+ (instancetype)numberWithUnsignedInteger:(NSUInteger)value {
  return [self numberWithInteger:static_cast<NSInteger>(value)];
}
- (BOOL)boolValue {
  return real_ != 0;
}
- (int)intValue {
  return static_cast<int>(integer_);
}
- (unsigned int)unsignedIntValue {
  return static_cast<unsigned int>(integer_);
}
- (NSInteger)integerValue {
  return static_cast<NSInteger>(integer_);
}
- (NSUInteger)unsignedIntegerValue {
  return static_cast<NSUInteger>(integer_);
}
- (double)doubleValue {
  return real_;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSNumber class]] && [object doubleValue] == real_;
}
- (NSString*)description {
  return real_ == static_cast<double>(integer_)
             ? [NSString stringWithFormat:@"%ld", static_cast<long>(integer_)]
             : [NSString stringWithFormat:@"%g", real_];
}
@end

@implementation NSArray
+ (instancetype)array {
  return [self arrayWithObjects:nullptr count:0];
}
+ (instancetype)arrayWithObject:(id)anObject {
  return [self arrayWithObjects:&anObject count:1];
}
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count {
  NSArray* array = [[self alloc] init];
  array->items_ = new Items(objects, objects + count);
  for (NSUInteger i = 0; i < count; ++i) [objects[i] retain];
  return [array autorelease];
}
- (void)dealloc {
  auto* items = static_cast<Items*>(items_);
  if (items != nullptr) {
    for (id item : *items) [item release];
  }
  delete items;
  [super dealloc];
}
- (NSUInteger)count {
  return items_ == nullptr ? 0 : static_cast<Items*>(items_)->size();
}
- (id)objectAtIndex:(NSUInteger)index {
  if (index >= [self count]) {
    softmetal::violation("-[NSArray objectAtIndex:]: index %lu of %lu", index, [self count]);
  }
  return (*static_cast<Items*>(items_))[index];
}
- (id)objectAtIndexedSubscript:(NSUInteger)index {
  return [self objectAtIndex:index];
}
@end

@implementation NSDictionary
+ (instancetype)dictionary {
  return [self dictionaryWithObjects:nullptr forKeys:nullptr count:0];
}
+ (instancetype)dictionaryWithObject:(id)object forKey:(id)key {
  return [self dictionaryWithObjects:&object forKeys:&key count:1];
}
+ (instancetype)dictionaryWithObjects:(const id[])objects
                              forKeys:(const id[])keys
                                count:(NSUInteger)count {
  NSDictionary* dictionary = [[self alloc] init];
  auto* entries = new Entries;
  for (NSUInteger i = 0; i < count; ++i)
    entries->emplace_back([keys[i] retain], [objects[i] retain]);
  dictionary->entries_ = entries;
  return [dictionary autorelease];
}
- (void)dealloc {
  auto* entries = static_cast<Entries*>(entries_);
  if (entries != nullptr) {
    for (const auto& [key, object] : *entries) {
      [key release];
      [object release];
    }
  }
  delete entries;
  [super dealloc];
}
- (NSUInteger)count {
  return entries_ == nullptr ? 0 : static_cast<Entries*>(entries_)->size();
}
- (id)objectForKey:(id)aKey {
  if (entries_ == nullptr) return nil;
  for (const auto& [key, object] : *static_cast<Entries*>(entries_)) {
    if ([key isEqual:aKey]) return object;
  }
  return nil;
}
- (id)objectForKeyedSubscript:(id)key {
  return [self objectForKey:key];
}
- (id)keyAtIndex:(NSUInteger)index {
  return (*static_cast<Entries*>(entries_))[index].first;
}
- (instancetype)copy {
  return [self retain];
}
@end
