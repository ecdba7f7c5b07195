#import <Foundation/Foundation.h>

#include <cstdarg>
#include <cstdio>
#include <string>

// A string that owns its text.
@interface SoftmetalString : NSString {
  std::string* text_;
}
@end

namespace {

// How the compiler lays out @"text".
struct Literal {
  Class isa;
  const char* text;
  unsigned length;
};

// printf's conversions, and %@.
std::string format_text(NSString* format, va_list arguments) {
  std::string result;
  va_list rest;
  va_copy(rest, arguments);
  for (const char* at = [format UTF8String]; *at != 0;) {
    if (*at != '%') {
      result += *at++;
      continue;
    }
    const char* first = at++;
    if (*at == '@') {
      id object = va_arg(rest, id);
      result += object == nil ? "(null)" : [[object description] UTF8String];
      ++at;
      continue;
    }
    while (*at != 0 && std::string_view("diouxXcsfFeEgGp%").find(*at) == std::string_view::npos)
      ++at;
    const std::string conversion(first, *at == 0 ? at : at + 1);
    const bool is_long = conversion.find_first_of("lzjt") != std::string::npos;
    char text[512];
    switch (*at == 0 ? '%' : *at++) {
      case 's':
        result += va_arg(rest, const char*);
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        std::snprintf(text, sizeof text, conversion.c_str(), va_arg(rest, double));
        result += text;
        break;
      case 'p':
        std::snprintf(text, sizeof text, "%p", va_arg(rest, void*));
        result += text;
        break;
      case '%':
        result += '%';
        break;
      default:
        if (is_long) {
          std::snprintf(text, sizeof text, conversion.c_str(), va_arg(rest, long));
        } else {
          std::snprintf(text, sizeof text, conversion.c_str(), va_arg(rest, int));
        }
        result += text;
    }
  }
  va_end(rest);
  return result;
}

}  // namespace

@implementation NSString
+ (instancetype)alloc {
  return self == [NSString class] ? [SoftmetalString alloc] : [super alloc];
}
+ (instancetype)string {
  return [self stringWithUTF8String:""];
}
+ (instancetype)stringWithUTF8String:(const char*)nullTerminatedCString {
  return [[[SoftmetalString alloc] initWithUTF8String:nullTerminatedCString] autorelease];
}
+ (instancetype)stringWithCString:(const char*)cString encoding:(NSStringEncoding)encoding {
  return [self stringWithUTF8String:cString];
}
+ (instancetype)stringWithFormat:(NSString*)format, ... {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = format_text(format, arguments);
  va_end(arguments);
  return [self stringWithUTF8String:text.c_str()];
}
- (instancetype)initWithUTF8String:(const char*)nullTerminatedCString {
  return [self init];
}
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding {
  return [self init];
}
- (const char*)UTF8String {
  return "";
}
- (NSUInteger)length {
  return std::string([self UTF8String]).size();
}
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding {
  return [self length];
}
- (BOOL)isEqualToString:(NSString*)string {
  return string != nil && std::string([self UTF8String]) == [string UTF8String];
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}
- (NSUInteger)hash {
  return std::hash<std::string>()([self UTF8String]);
}
- (NSString*)description {
  return self;
}
- (instancetype)copy {
  return [self retain];
}
@end

@implementation SoftmetalString
- (instancetype)initWithUTF8String:(const char*)nullTerminatedCString {
  text_ = new std::string(nullTerminatedCString);
  return self;
}
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding {
  text_ = new std::string(static_cast<const char*>(bytes), length);
  return self;
}
- (void)dealloc {
  delete text_;
  [super dealloc];
}
- (const char*)UTF8String {
  return text_ == nullptr ? "" : text_->c_str();
}
- (NSUInteger)length {
  return text_ == nullptr ? 0 : text_->size();
}
@end

@implementation NSConstantString
- (instancetype)retain {
  return self;
}
- (oneway void)release {
}
- (instancetype)autorelease {
  return self;
}
- (const char*)UTF8String {
  return reinterpret_cast<Literal*>(self)->text;
}
- (NSUInteger)length {
  return reinterpret_cast<Literal*>(self)->length;
}
@end

void NSLog(NSString* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "%s\n", format_text(format, arguments).c_str());
  va_end(arguments);
}
