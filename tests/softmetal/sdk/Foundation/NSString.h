#pragma once

#include <Foundation/NSObject.h>

typedef NS_ENUM(NSUInteger, NSStringEncoding) {
  NSASCIIStringEncoding = 1,
  NSUTF8StringEncoding = 4,
};

@interface NSString : NSObject
+ (instancetype)string;
+ (instancetype)stringWithUTF8String:(const char*)nullTerminatedCString;
+ (instancetype)stringWithCString:(const char*)cString encoding:(NSStringEncoding)encoding;
+ (instancetype)stringWithFormat:(NSString*)format, ...;
- (instancetype)initWithUTF8String:(const char*)nullTerminatedCString;
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding;
@property(readonly) const char* UTF8String;
@property(readonly) NSUInteger length;
- (BOOL)isEqualToString:(NSString*)string;
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding;
@end

// What the compiler makes of @"text": its layout is the compiler's.
@interface NSConstantString : NSString
@end

extern "C" void NSLog(NSString* format, ...);
